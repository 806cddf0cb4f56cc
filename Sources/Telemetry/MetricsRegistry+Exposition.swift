// Prometheus' text exposition format 0.0.4.

public import Base

extension MetricsRegistry {
    /// The media type of what `writeExposition` writes.
    public static let expositionType = "text/plain; version=0.0.4; charset=utf-8"

    /// Appends all metrics as text, each series summed over its shards.
    ///
    /// Safe on any thread. Shards are read one after the other while their lanes go on counting,
    /// so a histogram's count and sum may differ by the observations made meanwhile.
    public func writeExposition(to writer: ByteWriter) {
        for family in snapshot() {
            writer.append("# HELP " as StaticString)
            writer.append(family.name)
            writer.append(0x20)
            writer.append(escaped: family.help, quotes: false)
            writer.append("\n# TYPE " as StaticString)
            writer.append(family.name)
            writer.append(0x20)
            writer.append(family.kind.rawValue)
            writer.append(0x0A)
            for series in family.series { write(series, of: family, to: writer) }
        }
    }

    private func write(
        _ series: MetricFamily.Series, of family: MetricFamily, to writer: ByteWriter
    ) {
        if family.kind == .histogram {
            writeHistogram(series, of: family, to: writer)
            return
        }
        var whole: Int64 = 0
        var real = 0.0
        for shard in series.shards {
            switch shard {
            case .counter(let counter): whole &+= counter.value
            case .gauge(let gauge): whole &+= gauge.value
            case .function(let read): real += read()
            case .histogram: break
            }
        }
        writer.append(sample: family.name, "", series.labels, bound: nil)
        if real == 0 {
            writer.append(decimal: whole)
        } else {
            writer.append(real: real + Double(whole))
        }
        writer.append(0x0A)
    }

    private func writeHistogram(
        _ series: MetricFamily.Series, of family: MetricFamily, to writer: ByteWriter
    ) {
        let shards = series.shards.compactMap { shard -> Histogram? in
            if case .histogram(let histogram) = shard { histogram } else { nil }
        }
        guard let bounds = shards.first?.bounds else { return }
        var total: Int64 = 0
        for index in 0...bounds.count {
            for shard in shards { total &+= shard.count(index) }
            let bound = index < bounds.count ? bounds[index] : .infinity
            writer.append(sample: family.name, "_bucket", series.labels, bound: bound)
            writer.append(decimal: total)
            writer.append(0x0A)
        }
        writer.append(sample: family.name, "_sum", series.labels, bound: nil)
        writer.append(real: shards.reduce(0) { $0 + $1.sum })
        writer.append(0x0A)
        writer.append(sample: family.name, "_count", series.labels, bound: nil)
        writer.append(decimal: total)
        writer.append(0x0A)
    }
}

extension ByteWriter {
    /// Appends a sample's name and labels, and the space before its value.
    fileprivate func append(
        sample name: String, _ suffix: StaticString, _ labels: [MetricLabel], bound: Double?
    ) {
        append(name)
        append(suffix)
        var separator: UInt8 = 0x7B
        for label in labels {
            append(separator)
            separator = 0x2C
            append(label.name)
            append("=\"" as StaticString)
            append(escaped: label.value, quotes: true)
            append(0x22)
        }
        if let bound {
            append(separator)
            separator = 0x2C
            append("le=\"" as StaticString)
            append(real: bound)
            append(0x22)
        }
        if separator == 0x2C { append(0x7D) }
        append(0x20)
    }

    fileprivate func append(escaped text: String, quotes: Bool) {
        for byte in text.utf8 {
            switch byte {
            case 0x5C: append("\\\\" as StaticString)
            case 0x0A: append("\\n" as StaticString)
            case 0x22 where quotes: append("\\\"" as StaticString)
            default: append(byte)
            }
        }
    }

    fileprivate func append(real value: Double) {
        if value.isNaN {
            append("NaN" as StaticString)
        } else if value.isInfinite {
            append(value > 0 ? "+Inf" as StaticString : "-Inf")
        } else if let whole = Int64(exactly: value) {
            append(decimal: whole)
        } else {
            append(value.description)
        }
    }
}
