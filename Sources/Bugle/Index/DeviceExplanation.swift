// Why a device gets pushes, or not: what the index knows of its address, and what the
// configuration makes of that.

internal import Base
internal import Config
internal import Pipeline
internal import TokenIndex

/// One address of a user and whether an ordinary event would reach it.
internal struct DeviceExplanation {
    let report: AddressReport
    /// Why an event is not sent to it; nil when it is.
    private(set) var obstacle: String?
    /// What holds back some events only.
    let limits: [String]

    /// Explains all addresses of a user, in the order of their ids.
    static func all(
        _ reports: [AddressReport], app: Configuration.App, _ configuration: Configuration,
        staleness: StalenessPolicy, at now: UnixMillis
    ) -> [DeviceExplanation] {
        var found = reports.map { DeviceExplanation($0, app, staleness, now) }
        let chosen = preferred(among: found, configuration.index.gatewayPreference)
        for index in found.indices where found[index].obstacle == nil {
            guard let other = chosen[found[index].report.id.installID],
                other.id != found[index].report.id, found[index].isAlert
            else { continue }
            found[index].obstacle =
                "the install gets one push, through \(other.id) (\(other.address?.wayName ?? ""))"
        }
        return found
    }

    private init(
        _ report: AddressReport, _ app: Configuration.App, _ staleness: StalenessPolicy,
        _ now: UnixMillis
    ) {
        self.report = report
        var limits: [String] = []
        if let address = report.address {
            if report.id.kind != "alert" {
                limits.append("only events of the kind \(report.id.kind) go there")
            }
            if !address.optOuts.isEmpty {
                limits.append("opted out of \(address.optOuts.joined(separator: ", "))")
            }
            if !address.mutedChannels.isEmpty {
                limits.append("muted: \(address.mutedChannels.joined(separator: ", "))")
            }
        }
        self.limits = limits
        obstacle = report.obstacle(at: now, staleness)
        if obstacle == nil, let gateway = report.address?.gateway, !app.gateways.contains(gateway) {
            obstacle =
                "apps.\(app.name) has no \(gateway.rawValue): there is no credential to send with"
        }
    }

    private var isAlert: Bool { report.id.kind == "alert" }

    /// For each install the address that a dispatcher chooses of those that can be sent to.
    private static func preferred(
        among found: [DeviceExplanation], _ preference: [Gateway]
    ) -> [String: AddressReport] {
        func rank(_ report: AddressReport) -> (Int, Int64) {
            let place = report.address.flatMap { preference.firstIndex(of: $0.gateway) }
            return (place ?? .max, -(report.address?.registeredAt.value ?? 0))
        }
        var best: [String: AddressReport] = [:]
        for entry in found where entry.obstacle == nil && entry.isAlert {
            let install = entry.report.id.installID
            if let other = best[install], rank(entry.report) >= rank(other) { continue }
            best[install] = entry.report
        }
        return best
    }
}

extension Configuration.App {
    /// The gateways that the app has a credential for.
    internal var gateways: Set<Gateway> {
        var gateways: Set<Gateway> = []
        if apns != nil { gateways.insert(.apns) }
        if fcm != nil { gateways.insert(.fcm) }
        if webPush != nil { gateways.insert(.webpush) }
        if expo != nil { gateways.insert(.expo) }
        return gateways
    }
}

extension DeviceAddress {
    /// The gateway, and its environment where there are several.
    internal var wayName: String {
        environment == .none ? gateway.rawValue : "\(gateway.rawValue) \(environment.rawValue)"
    }
}
