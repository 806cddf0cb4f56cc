import Foundation

/// What another parser finds in a whole JSON text; nil when it takes the bytes for none.
/// Foundation's also refuses numbers beyond its Double, which RFC 8259 section 6 leaves to each
/// parser: those are read as if their exponent were not there.
func wholeJSON(_ bytes: [UInt8]) -> Any? {
    func parse(_ data: Data) -> Any? {
        try? JSONSerialization.jsonObject(with: data)
    }
    if let value = parse(Data(bytes)) { return value }
    guard let text = String(validating: bytes, as: UTF8.self) else { return nil }
    let shorter = text.replacing(/([0-9])[eE][+-]?[0-9]{3,}(?=[\s,}\]]|$)/) { $0.output.1 }
    return shorter == text ? nil : parse(Data(shorter.utf8))
}

func isWholeJSON(_ bytes: [UInt8]) -> Bool { wholeJSON(bytes) != nil }
