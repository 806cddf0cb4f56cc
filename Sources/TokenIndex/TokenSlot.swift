// A token as something that one address at a time can hold.

internal import Base

/// The identity of a token: app, gateway, environment and hash, in one text.
internal struct TokenSlot: Hashable, Sendable, CustomStringConvertible {
    let description: String

    init(_ address: DeviceAddress) {
        let gateway = address.gateway.rawValue
        let environment = address.environment.rawValue
        description = "\(address.app):\(gateway):\(environment):\(address.tokenHash)"
    }
}

/// An address' claim of a token. The greater one wins.
internal struct TokenClaim: Comparable, Hashable, Sendable {
    var registeredAt: UnixMillis
    var addressID: AddressID

    static func < (left: TokenClaim, right: TokenClaim) -> Bool {
        left.registeredAt == right.registeredAt
            ? left.addressID < right.addressID : left.registeredAt < right.registeredAt
    }
}
