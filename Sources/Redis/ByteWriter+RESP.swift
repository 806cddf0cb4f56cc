// The request side of the protocol: an array of bulk strings.

public import Base

extension ByteWriter {
    /// Opens a command of so many arguments, its name included.
    public func append(commandOf count: Int) {
        append(0x2A)
        append(decimal: Int64(count))
        append(0x0D)
        append(0x0A)
    }

    /// Appends an argument.
    public func append(argument: UnsafeRawBufferPointer) {
        append(argumentOf: argument.count)
        append(argument)
        append(0x0D)
        append(0x0A)
    }

    /// Appends an argument.
    public func append(argument: [UInt8]) { argument.withUnsafeBytes { append(argument: $0) } }

    /// Appends an argument.
    public func append(argument: String) {
        var argument = argument
        argument.withUTF8 { append(argument: UnsafeRawBufferPointer($0)) }
    }

    /// Appends an argument.
    public func append(argument: StaticString) {
        append(
            argument: UnsafeRawBufferPointer(
                start: argument.utf8Start, count: argument.utf8CodeUnitCount))
    }

    private func append(argumentOf length: Int) {
        append(0x24)
        append(decimal: Int64(length))
        append(0x0D)
        append(0x0A)
    }
}
