// swift-tools-version: 6.2
// Bugle: a self-hosted push dispatcher. One target per concept, arrows point down only;
// every C library has exactly one Swift importer.
import PackageDescription

let swiftSettings: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

func room(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: swiftSettings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name, dependencies: dependencies, swiftSettings: swiftSettings)
}

func systemLibrary(_ name: String, apt: String) -> Target {
    .systemLibrary(name: name, path: "Sources/C/\(name)", providers: [.apt([apt])])
}

func shims(_ name: String, _ linked: [String] = []) -> Target {
    .target(
        name: name, path: "Sources/C/\(name)",
        linkerSettings: linked.map { .linkedLibrary($0) })
}

let package = Package(
    name: "bugle",
    products: [.executable(name: "bugle", targets: ["Bugle"])],
    targets: [
        // The C floor.
        shims("CLinux"),
        systemLibrary("CRDKafka", apt: "librdkafka-dev"),
        shims("CRDKafkaShims", ["rdkafka"]),
        systemLibrary("CNGHTTP2", apt: "libnghttp2-dev"),
        systemLibrary("CHTTPParser", apt: "libhttp-parser-dev"),
        systemLibrary("COpenSSL", apt: "libssl-dev"),
        shims("COpenSSLShims", ["ssl", "crypto"]),
        systemLibrary("CHiredis", apt: "libhiredis-dev"),
        systemLibrary("CYAML", apt: "libyaml-dev"),
        systemLibrary("CZlib", apt: "zlib1g-dev"),
        systemLibrary("CMicroHTTPD", apt: "libmicrohttpd-dev"),
        shims("CMicroHTTPDShims", ["microhttpd"]),
        shims("CICUShims", ["icui18n", "icuuc"]),
        .target(
            name: "CSimdJSON", path: "Sources/C/CSimdJSON",
            cxxSettings: [.unsafeFlags(["-O2"])],
            linkerSettings: [.linkedLibrary("simdjson"), .linkedLibrary("stdc++")]),

        // Level 0 and 1.
        room("Base"),
        room("EventLoop", ["Base", "CLinux"]),
        room("Telemetry", ["Base"]),
        room("Compression", ["Base", "CZlib"]),

        // Level 2.
        room("Crypto", ["Base", "COpenSSL", "COpenSSLShims"]),
        room("JSON", ["Base", "CSimdJSON"]),

        // Level 3.
        room(
            "Kafka", ["Base", "EventLoop", "Telemetry", "CLinux", "CRDKafka", "CRDKafkaShims"]),
        room("HTTP2", ["Base", "EventLoop", "Telemetry", "Crypto", "CNGHTTP2", "CHTTPParser"]),
        room("Redis", ["Base", "EventLoop", "Telemetry", "Crypto", "CHiredis"]),
        room("Config", ["Base", "Telemetry", "CYAML"]),

        // Level 4.
        room("Gateways", ["Base", "Crypto", "JSON"]),
        room("TokenIndex", ["Base", "EventLoop", "Telemetry", "Crypto", "JSON", "Redis"]),

        room("Routes", ["Base", "JSON", "Config", "CICUShims"]),

        // Level 5.
        room(
            "Pipeline",
            [
                "Base", "EventLoop", "Telemetry", "Crypto", "JSON", "Kafka", "HTTP2", "Gateways",
                "TokenIndex", "Config", "Routes", "Compression",
            ]),
        room("Admin", ["Base", "Telemetry", "CMicroHTTPD", "CMicroHTTPDShims"]),
        room(
            "Simulator",
            ["Base", "EventLoop", "Telemetry", "Compression", "Crypto", "JSON", "HTTP2"]),

        // Level 6.
        .executableTarget(
            name: "Bugle",
            dependencies: [
                "Base", "EventLoop", "Telemetry", "Crypto", "JSON", "Kafka", "HTTP2", "Redis",
                "Config", "Gateways", "TokenIndex", "Routes", "Pipeline", "Admin", "Simulator",
                "CLinux",
            ],
            swiftSettings: swiftSettings),

        // Measuring: load over the HTTP/2 client alone.
        .executableTarget(
            name: "ClientBenchmark", dependencies: ["Base", "Crypto", "EventLoop", "HTTP2"],
            path: "benchmarks/client", swiftSettings: swiftSettings),
        .executableTarget(
            name: "IndexBenchmark",
            dependencies: ["Base", "EventLoop", "Redis", "TokenIndex"],
            path: "benchmarks/index", swiftSettings: swiftSettings),
        // Measuring: what building a push costs at each gateway.
        .executableTarget(
            name: "GatewayBenchmark",
            dependencies: ["Base", "Compression", "Crypto", "Gateways", "JSON"],
            path: "benchmarks/gateways", swiftSettings: swiftSettings),
        // Measuring: what routes and templates cost.
        .executableTarget(
            name: "RouteBenchmark", dependencies: ["Base", "JSON", "Config", "Routes"],
            path: "benchmarks/routes", swiftSettings: swiftSettings),
        // Measuring: the mock cluster with events and registrations, in a process of its own.
        .executableTarget(
            name: "BenchmarkBroker",
            dependencies: ["Base", "Crypto", "JSON", "Kafka", "Telemetry"],
            path: "benchmarks/broker", swiftSettings: swiftSettings),

        // Tests: one suite per room, then the ones that need servers.
        tests("BaseTests", ["Base"]),
        tests("EventLoopTests", ["EventLoop", "Base"]),
        tests("TelemetryTests", ["Telemetry", "Base"]),
        tests("CompressionTests", ["Compression", "Base"]),
        tests("CryptoTests", ["Crypto", "Base"]),
        tests("JSONTests", ["JSON", "Base"]),
        tests("KafkaTests", ["Kafka", "EventLoop", "Base"]),
        tests("HTTP2Tests", ["HTTP2", "EventLoop", "Crypto", "Base"]),
        .target(
            name: "RedisServer", dependencies: ["EventLoop"], path: "Tests/Support/RedisServer",
            swiftSettings: swiftSettings),
        tests("RedisTests", ["Redis", "RedisServer", "Crypto", "EventLoop", "Base"]),
        tests("ConfigTests", ["Config", "Telemetry", "Base"]),
        tests("RoutesTests", ["Routes", "Config", "JSON", "Base"]),
        tests("GatewaysTests", ["Gateways", "Crypto", "JSON", "Base"]),
        tests(
            "TokenIndexTests", ["TokenIndex", "Redis", "RedisServer", "EventLoop", "JSON", "Base"]),
        tests(
            "PipelineTests",
            [
                "Pipeline", "Simulator", "Kafka", "HTTP2", "Gateways", "TokenIndex", "Config",
                "Routes", "EventLoop", "JSON", "Telemetry", "Crypto", "Base",
            ]),
        tests("AdminTests", ["Admin", "Telemetry", "Base"]),
        tests(
            "BugleTests",
            [
                "Bugle", "Config", "Routes", "Crypto", "Gateways", "Kafka", "JSON", "Pipeline",
                "Redis", "RedisServer", "Simulator", "TokenIndex", "Telemetry", "Base",
            ]),
        tests(
            "FuzzTests",
            [
                "Gateways", "HTTP2", "TokenIndex", "Pipeline", "Config", "Routes", "Crypto", "JSON",
                "Base",
            ]),
        tests("SimulatorTests", ["Simulator", "HTTP2", "EventLoop", "Crypto", "JSON", "Base"]),
    ],
    cxxLanguageStandard: .cxx17
)
