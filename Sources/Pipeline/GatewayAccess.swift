// The way to gateways: what all connections to them have in common.

internal import Base
public import Config
public import EventLoop

/// How gateways are reached: by which way out. Whom connections trust is each gateway's own.
public struct GatewayAccess: Sendable {
    /// The way out.
    public var egress: Egress

    /// Directly, unless told otherwise.
    public init(egress: Egress = .direct) { self.egress = egress }

    /// What a configuration asks for; the proxy's password is read here.
    public init(_ configuration: Configuration) throws(PushAppError) {
        let settings = configuration.egress
        egress = Egress(addresses: Egress.AddressChoice(settings.addresses))
        guard let proxy = settings.proxy else { return }
        egress.proxy = Egress.Proxy(
            host: proxy.address.host, port: proxy.address.port, bypass: proxy.bypass)
        guard let user = proxy.user, let source = proxy.password else { return }
        do throws(SecretSourceError) {
            egress.proxy?.authorization = Egress.Proxy.basic(
                user: user, password: try source.read().exposed)
        } catch {
            throw PushAppError(
                setting: "egress.proxy.password_file", file: error.path, problem: error.message)
        }
    }
}

extension Egress.AddressChoice {
    fileprivate init(_ addresses: Configuration.Egress.Addresses) {
        self =
            switch addresses {
            case .auto: .auto
            case .ipv4: .ipv4
            case .ipv6: .ipv6
            case .onlyIPv4: .onlyIPv4
            case .onlyIPv6: .onlyIPv6
            }
    }
}
