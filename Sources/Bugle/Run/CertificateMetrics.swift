internal import Base
internal import Config
internal import Crypto
internal import Telemetry

extension Configuration {
    /// The end of every certificate that the configuration names. Files are read whenever somebody
    /// reads the metrics, so that a renewed one shows.
    internal func registerCertificates(in registry: MetricsRegistry) {
        for (setting, path) in certificateFiles {
            registry.gauge(
                "bugle_certificate_seconds_left",
                help: "Until a file's first certificate ends; exactly 0: it cannot be read.",
                labels: [("setting", setting)]
            ) { CertificateExpiry.timeLeft(path: path)?.seconds ?? 0 }
        }
    }

    /// The certificates that the configuration names, by the settings that name them.
    internal var certificateFiles: [(setting: String, path: String)] {
        var files: [(String, String?)] = [
            ("redis.tls.ca_file", redis.tls?.caFile),
            ("redis.tls.cert_file", redis.tls?.certificateFile),
        ]
        files.append(("egress.ca_file", egress.caFile))
        for app in apps {
            files.append(("apps.\(app.name).expo.ca_file", app.expo?.caFile))
            files.append(("apps.\(app.name).apns.ca_file", app.apns?.caFile))
            files.append(("apps.\(app.name).apns.cert_file", app.apns?.certificateFile))
            files.append(("apps.\(app.name).fcm.ca_file", app.fcm?.caFile))
            files.append(("apps.\(app.name).webpush.ca_file", app.webPush?.caFile))
        }
        for name in ["ssl.certificate.location", "ssl.ca.location"] {
            let property = kafka.properties.first { $0.name == name }
            files.append(("kafka.properties.\(name)", (try? property?.value.read())?.exposed))
        }
        // A label holds 128 bytes; a longer name of an app has no certificate of its own here.
        return files.compactMap { setting, path in
            path.flatMap { setting.utf8.count <= 128 ? (setting, $0) : nil }
        }
    }
}
