// An HTTP/2 client that is not ours: Node's, run as a child process with a list of requests.
// What it saw comes back as JSON.

import Base
import Glibc
import JSON

/// One request that the child sends.
struct NodeRequest {
    var connection = 0
    var method = "POST"
    var path: String
    /// A name may occur more than once.
    var fields: [(String, String)] = []
    var body = ""
    /// Names to be sent as never indexed.
    var sensitive: [String] = []
    /// Do not wait for the answer before the next request.
    var isParallel = false
    /// Milliseconds after which the child gives up on the answer.
    var patience = 5000
}

/// What became of one request.
struct NodeAnswer {
    var status: Int?
    var fields: [String: String] = [:]
    var body = ""
    /// The error code of a reset, or nil.
    var resetCode: Int?
    /// The text of an error, or nil.
    var error: String?
}

/// What the child saw.
struct NodeTranscript {
    var answers: [NodeAnswer]
    /// `settings N`, `goaway CODE LAST DEBUG`, `close`, `connected ALPN`, in order, with the
    /// connection's number in front.
    var events: [String]
}

enum NodeClient {
    static func run(
        port: UInt16, caPEM: String, linger: Int = 0, _ requests: [NodeRequest]
    ) -> NodeTranscript {
        let program = ByteWriter()
        program.append("{\"port\":\(port),\"linger\":\(linger),\"ca\":")
        program.append(jsonString: caPEM)
        program.append(",\"requests\":[")
        for (index, request) in requests.enumerated() {
            if index > 0 { program.append(",") }
            append(request, to: program)
        }
        program.append("]}")
        return parse(child(stdin: program.text))
    }

    private static func append(_ request: NodeRequest, to program: ByteWriter) {
        program.append("{\"c\":\(request.connection),\"patience\":\(request.patience),\"method\":")
        program.append(jsonString: request.method)
        program.append(",\"path\":")
        program.append(jsonString: request.path)
        program.append(",\"parallel\":\(request.isParallel),\"body\":")
        program.append(jsonString: request.body)
        program.append(",\"fields\":[")
        for (index, field) in request.fields.enumerated() {
            if index > 0 { program.append(",") }
            program.append("[")
            program.append(jsonString: field.0)
            program.append(",")
            program.append(jsonString: field.1)
            program.append("]")
        }
        program.append("],\"sensitive\":[")
        for (index, name) in request.sensitive.enumerated() {
            if index > 0 { program.append(",") }
            program.append(jsonString: name)
        }
        program.append("]}")
    }

    private static func child(stdin text: String) -> String {
        let stem = "/tmp/bugle-node-\(getpid())-\(UInt64.random(in: .min ... .max))"
        write(text, to: stem + ".json")
        write(script, to: stem + ".js")
        defer {
            unlink(stem + ".json")
            unlink(stem + ".js")
        }
        guard let pipe = popen("node \(stem).js \(stem).json 2>&1", "r") else { return "" }
        defer { pclose(pipe) }
        var output: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = fread(&buffer, 1, buffer.count, pipe)
            if count == 0 { break }
            output += buffer[..<count]
        }
        return String(decoding: output, as: UTF8.self)
    }

    private static func write(_ text: String, to path: String) {
        guard let file = fopen(path, "w") else { return }
        fputs(text, file)
        fclose(file)
    }

    private static func parse(_ output: String) -> NodeTranscript {
        guard let value = try? JSONParser().parse(output) else {
            return NodeTranscript(answers: [], events: ["node: " + output])
        }
        var transcript = NodeTranscript(answers: [], events: [])
        value["events"]?.forEachElement { transcript.events.append($0.string ?? "") }
        value["answers"]?.forEachElement { item in
            var answer = NodeAnswer()
            answer.status = item["status"]?.int64.map { Int($0) }
            answer.body = item["body"]?.string ?? ""
            answer.resetCode = item["reset"]?.int64.map { Int($0) }
            answer.error = item["error"]?.string
            item["fields"]?.forEachMember { name, value in
                answer.fields[String(decoding: name, as: UTF8.self)] = value.string ?? ""
            }
            transcript.answers.append(answer)
        }
        return transcript
    }

    private static let script = """
        const http2 = require('http2'), fs = require('fs');
        const program = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
        const events = [], answers = [], sessions = {}, pending = [];
        function session(c) {
          if (sessions[c]) return sessions[c];
          const s = http2.connect('https://localhost:' + program.port, {ca: program.ca});
          const note = text => events.push(c + ' ' + text);
          s.on('connect', () => note('connected ' + s.alpnProtocol));
          s.on('remoteSettings', v => note('settings ' + v.maxConcurrentStreams));
          s.on('goaway', (code, last, data) =>
            note('goaway ' + code + ' ' + last + ' ' + (data ? data.toString() : '')));
          s.on('close', () => note('close'));
          s.on('error', e => note('error ' + e.code));
          const ready = new Promise(done => {
            s.once('remoteSettings', done); s.once('error', done); s.once('close', done);
          });
          return sessions[c] = {s, ready};
        }
        async function send(r, index) {
          const answer = answers[index] = {fields: {}, body: ''};
          const {s, ready} = session(r.c);
          const late = new Promise(done => setTimeout(done, r.patience));
          await Promise.race([ready, late]);
          const headers = {':method': r.method, ':path': r.path};
          for (const [name, value] of r.fields) {
            if (headers[name] === undefined) headers[name] = value;
            else headers[name] = [].concat(headers[name], value);
          }
          headers[http2.sensitiveHeaders] = r.sensitive;
          await new Promise(done => {
            let stream;
            try { stream = s.request(headers, {endStream: r.body.length === 0}); }
            catch (e) { answer.error = e.code || String(e); return done(); }
            const timer = setTimeout(() => {
              answer.error = 'patience'; stream.close(8); done();
            }, r.patience);
            stream.on('response', h => {
              answer.status = h[':status'];
              for (const k of Object.keys(h)) if (k[0] !== ':') answer.fields[k] = String(h[k]);
            });
            stream.setEncoding('utf8');
            stream.on('data', d => answer.body += d);
            stream.on('error', e => { answer.error = answer.error || e.code; });
            stream.on('close', () => {
              clearTimeout(timer);
              if (stream.rstCode) answer.reset = stream.rstCode;
              done();
            });
            if (r.body.length) stream.end(r.body);
          });
        }
        (async () => {
          for (let i = 0; i < program.requests.length; i++) {
            const p = send(program.requests[i], i);
            if (program.requests[i].parallel) pending.push(p); else await p;
          }
          await Promise.all(pending);
          if (program.linger) await new Promise(done => setTimeout(done, program.linger));
          for (const c in sessions) sessions[c].s.destroy();
          process.stdout.write(JSON.stringify({answers, events}), () => process.exit(0));
        })();
        """
}
