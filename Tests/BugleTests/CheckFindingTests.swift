// What `bugle check` says of clocks that differ and of certificates that end.

import Base
import Testing

@testable import Bugle

@Suite struct `A check` {
    @Test func `names a clock that differs from a gateway's, by how much and which way`() {
        let behind = CredentialCheck.finding(clockAhead: .seconds(90), "apps.shop.fcm")
        #expect(
            behind
                == .warning(
                    "clock: this machine is 90 s behind the gateway of apps.shop.fcm; gateways "
                        + "refuse tokens of a wrong clock; run a time service"))
        let ahead = CredentialCheck.finding(clockAhead: .seconds(-3600), "apps.shop.expo")
        #expect(ahead?.text.contains("3600 s ahead of the gateway of apps.shop.expo") == true)
        for span in [TimeSpan.zero, .seconds(5), .seconds(-5)] {
            #expect(CredentialCheck.finding(clockAhead: span, "x") == nil)
        }
        #expect(CredentialCheck.finding(clockAhead: nil, "apps.shop.apns") == nil)
    }

    @Test func `names a certificate that ends within thirty days, or has ended`() {
        func text(_ hours: Int64) -> String? {
            OfflineCheck.finding(
                timeLeft: .hours(hours), "apps.shop.apns.cert_file", "/etc/cert.pem")?.text
        }
        #expect(text(30 * 24) == nil)
        #expect(
            text(3 * 24 + 5)
                == "apps.shop.apns.cert_file: the certificate in /etc/cert.pem ends in 3 days; "
                + "have it renewed")
        #expect(text(5)?.contains("ends in 0 days") == true)
        #expect(text(-49)?.contains("ended 2 days ago") == true)
    }
}
