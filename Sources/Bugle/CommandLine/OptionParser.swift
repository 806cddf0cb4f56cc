internal import CLinux
internal import Config
internal import Glibc
internal import Synchronization

/// Parses options with getopt_long: `--name value`, `--name=value`, unambiguous beginnings of
/// names, `--` before words that begin with a dash, options before and behind words.
internal enum OptionParser {
    /// getopt_long keeps its state in globals.
    private static let turn = Mutex(())

    static func parse(_ words: [String], _ options: [Option]) throws(Failure) -> Arguments {
        let result: Result<Arguments, Failure> = turn.withLock { _ in
            do throws(Failure) {
                return .success(try Parse(words, options).run())
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }
}

/// One run over one command line. Owns the C copies of words and names, freed in `deinit`.
private final class Parse {
    private let options: [Option]
    private let words: [String]
    private var arguments: [UnsafeMutablePointer<CChar>?]
    private let names: [UnsafeMutablePointer<CChar>?]
    private var table: [option]
    private var values: [String: String] = [:]

    /// Codes of `getopt_long` for our options start above every character.
    private static let firstCode: Int32 = 1000
    private static let helpCode = Int32(UInt8(ascii: "h"))

    init(_ words: [String], _ options: [Option]) {
        self.options = options
        self.words = words
        arguments = (["bugle"] + words).map { strdup($0) } + [nil]
        names = options.map { strdup($0.name) }
        table = zip(options, names).enumerated().map { index, pair in
            option(
                name: UnsafePointer(pair.1), has_arg: pair.0.argument == nil ? 0 : 1, flag: nil,
                val: Self.firstCode + Int32(index))
        }
        table.append(option())
    }

    deinit {
        for argument in arguments { free(argument) }
        for name in names { free(name) }
    }

    func run() throws(Failure) -> Arguments {
        bugle_options_restart()
        let count = Int32(words.count + 1)
        var next = 1
        while true {
            let step = bugle_options_step(count, arguments, ":h", table)
            switch step.code {
            case -1: return Arguments(values: values, positional: rest(from: Int(step.next)))
            case Self.helpCode: values["help"] = ""
            case Int32(UInt8(ascii: ":")):
                throw .usage("\(word(at: Int(step.next) - 1)) needs an argument")
            case Int32(UInt8(ascii: "?")): throw unknown(step, since: next)
            default:
                let option = options[Int(step.code - Self.firstCode)]
                values[option.name] = step.value.map { String(cString: $0) } ?? ""
            }
            next = Int(step.next)
        }
    }

    /// getopt_long has moved words behind the options; the array is in its order now.
    private func rest(from index: Int) -> [String] {
        guard index <= words.count else { return [] }
        return (index...words.count).map { word(at: $0) }
    }

    private func word(at index: Int) -> String {
        arguments.indices.contains(index) ? arguments[index].map { String(cString: $0) } ?? "" : ""
    }

    private func unknown(_ step: bugle_option_step, since next: Int) -> Failure {
        if step.rejected >= Self.firstCode {
            return .usage(
                "--\(options[Int(step.rejected - Self.firstCode)].name) takes no argument")
        }
        if step.rejected > 0, let scalar = Unicode.Scalar(UInt32(step.rejected)) {
            return .usage("-\(Character(scalar)): unknown option; options begin with two dashes")
        }
        let word = word(at: Int(step.next) - 1)
        let name = String(word.drop { $0 == "-" }.prefix { $0 != "=" })
        let beginners = options.map(\.name).filter { $0.hasPrefix(name) }
        if beginners.count > 1 {
            return .usage("--\(name) may mean --" + beginners.joined(separator: " or --"))
        }
        let nearest = NearestName.find(name, among: options.map(\.name))
        let advice = nearest.map { "; did you mean --\($0)?" } ?? "; --help shows what there is"
        return .usage("--\(name): unknown option\(advice)")
    }
}
