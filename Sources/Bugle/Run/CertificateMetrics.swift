internal import Base
internal import Config
internal import Crypto
internal import Telemetry

extension Configuration {
    /// The end of every certificate that the configuration names. Files are read whenever somebody
    /// reads the metrics, so that a renewed one shows.
    internal func registerCertificates(in registry: MetricsRegistry) {
        for file in certificateFiles {
            let path = file.path
            registry.gauge(
                "bugle_certificate_seconds_left",
                help: "Until a file's first certificate ends; exactly 0: it cannot be read.",
                labels: [
                    ("app", file.app ?? "none"), ("gateway", file.gateway?.rawValue ?? "none"),
                    ("setting", file.setting),
                ]
            ) { CertificateExpiry.timeLeft(path: path)?.seconds ?? 0 }
        }
    }

    /// The certificates that the configuration names.
    internal var certificateFiles: [CertificateFile] {
        var files: [CertificateFile] = []
        func add(
            _ setting: String, _ path: String?, _ app: String? = nil, _ gateway: Gateway? = nil
        ) {
            // A label holds 128 bytes; a longer name of an app has no certificate of its own here.
            guard let path, setting.utf8.count <= 128 else { return }
            files.append(
                CertificateFile(setting: setting, path: path, app: app, gateway: gateway))
        }
        add("redis.tls.ca_file", redis.tls?.caFile)
        add("redis.tls.cert_file", redis.tls?.certificateFile)
        add("egress.ca_file", egress.caFile)
        for app in apps {
            func addFile(_ gateway: Gateway, _ file: String, _ path: String?) {
                let setting = "apps.\(app.name).\(gateway.rawValue).\(file)"
                add(setting, path, app.name, gateway)
            }
            addFile(.expo, "ca_file", app.expo?.caFile)
            addFile(.apns, "ca_file", app.apns?.caFile)
            addFile(.apns, "cert_file", app.apns?.certificateFile)
            addFile(.fcm, "ca_file", app.fcm?.caFile)
            addFile(.webpush, "ca_file", app.webPush?.caFile)
        }
        for name in ["ssl.certificate.location", "ssl.ca.location"] {
            let property = kafka.properties.first { $0.name == name }
            add("kafka.properties.\(name)", (try? property?.value.read())?.exposed)
        }
        return files
    }
}

/// A certificate that the configuration names.
internal struct CertificateFile: Sendable {
    /// The setting that names it.
    var setting: String
    var path: String
    /// Whose it is; nil for what all apps share.
    var app: String?
    /// What it is for; nil when it is for no gateway or for all.
    var gateway: Gateway?
}
