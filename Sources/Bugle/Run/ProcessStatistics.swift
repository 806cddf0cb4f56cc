// What the operating system knows of this process, under the names that Prometheus' own clients
// give it, so that ready-made dashboards find it. Asked for when somebody reads the metrics.

internal import Base
internal import Glibc
internal import Telemetry

/// The process's own metrics.
internal enum ProcessStatistics {
    /// Adds them to a registry; the process counts as started now.
    static func register(in registry: MetricsRegistry) {
        registry.gauge(
            "bugle_build_info", help: "1; the version is a label.",
            labels: [("version", Program.version)]
        ) { 1 }
        registry.counter(
            "process_cpu_seconds_total", help: "Processor time, in user and kernel mode."
        ) { cpuSeconds }
        registry.gauge("process_resident_memory_bytes", help: "Resident memory.") {
            memory.resident
        }
        registry.gauge("process_virtual_memory_bytes", help: "Virtual memory.") {
            memory.virtual
        }
        let startedAt = Double(SystemTime.shared.wall.value) / 1000
        registry.gauge(
            "process_start_time_seconds", help: "When the process started, since the epoch."
        ) { startedAt }
        registry.gauge("process_open_fds", help: "Open file descriptors.") { openDescriptors }
        registry.gauge("process_max_fds", help: "File descriptors that may be open.") {
            var limit = rlimit()
            return getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0
                ? Double(limit.rlim_cur) : 0
        }
    }

    private static var cpuSeconds: Double {
        var usage = rusage()
        guard getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage) == 0 else { return 0 }
        return seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }

    private static func seconds(_ time: timeval) -> Double {
        Double(time.tv_sec) + Double(time.tv_usec) / 1e6
    }

    /// Both are in pages, the first two numbers of a line.
    private static var memory: (virtual: Double, resident: Double) {
        guard let file = fopen("/proc/self/statm", "r") else { return (0, 0) }
        defer { fclose(file) }
        var bytes = [CChar](repeating: 0, count: 128)
        guard fgets(&bytes, Int32(bytes.count), file) != nil else { return (0, 0) }
        let line = String(decoding: bytes.prefix { $0 != 0 }.map(UInt8.init), as: UTF8.self)
        let pages = line.split(separator: " ").prefix(2).compactMap { Double($0) }
        let page = Double(sysconf(Int32(_SC_PAGESIZE)))
        return pages.count == 2 ? (pages[0] * page, pages[1] * page) : (0, 0)
    }

    private static var openDescriptors: Double {
        guard let folder = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(folder) }
        var count = 0
        while readdir(folder) != nil { count += 1 }
        // Itself, its parent, and the descriptor that reads it.
        return Double(max(count - 3, 0))
    }
}
