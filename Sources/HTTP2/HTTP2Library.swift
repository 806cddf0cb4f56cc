internal import CNGHTTP2

/// The library behind this room.
public enum HTTP2Library {
    /// Its version as it is loaded, for example `1.52.0`.
    public static var version: String {
        guard let information = nghttp2_version(0), let text = information.pointee.version_str
        else { return "unknown" }
        return String(cString: text)
    }
}
