// The page at `/`: one document that needs nothing else, and asks `/status.json` every two seconds.
// For people who have no dashboard at hand, and for those who are awake at three.

internal import Base

/// The status page.
internal enum StatusPage {
    /// What a browser may do with it: run what stands in it and ask this server, nothing else.
    static let policy: StaticString = """
        default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
        connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
        frame-ancestors 'none'
        """

    static func write(to bytes: ByteWriter) { bytes.append(document) }

    private static let document: StaticString = #"""
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>Bugle</title>
        <link rel="icon" href="data:,">
        <style>
        :root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --ink: #1b1f24; --soft: #57606a;
          --line: #d8dee4; --good: #116329; --goodbg: #dafbe1; --bad: #a40e26; --badbg: #ffebe9;
          --warn: #7d4e00; --warnbg: #fff8c5; --accent: #0550ae; }
        @media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --card: #161b22; --ink: #e6edf3;
          --soft: #9da7b3; --line: #30363d; --good: #7ee787; --goodbg: #12261e; --bad: #ffa198;
          --badbg: #301418; --warn: #f2cc60; --warnbg: #2b2110; --accent: #79c0ff; } }
        * { box-sizing: border-box; }
        body { margin: 0; background: var(--bg); color: var(--ink);
          font: 16px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
        header, main, footer { max-width: 70rem; margin: 0 auto; padding: 0 1rem; }
        header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center;
          padding-top: 1rem; padding-bottom: .75rem; }
        h1 { font-size: 1.35rem; margin: 0; }
        h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
        .who { color: var(--soft); overflow-wrap: anywhere; }
        .pill { border-radius: 1rem; padding: .1rem .7rem; font-weight: 600; white-space: nowrap; }
        .good { color: var(--good); background: var(--goodbg); }
        .bad { color: var(--bad); background: var(--badbg); }
        .warn { color: var(--warn); background: var(--warnbg); }
        button { font: inherit; color: var(--accent); background: var(--card); padding: .25rem .8rem;
          border: 1px solid var(--line); border-radius: .5rem; cursor: pointer; margin-left: auto; }
        :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
        section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
          padding: .9rem 1rem; margin: 0 0 1rem; }
        .cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
          margin: 0 0 1rem; }
        .cards div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
          padding: .7rem .9rem; }
        dt { color: var(--soft); font-size: .88rem; }
        dd { margin: 0; font-size: 1.5rem; font-weight: 600; }
        dd small { display: block; font-size: .82rem; font-weight: 400; color: var(--soft); }
        dl { margin: 0; }
        .scroll { overflow-x: auto; }
        table { border-collapse: collapse; width: 100%; }
        th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-top: 1px solid var(--line);
          vertical-align: top; }
        thead th { border-top: 0; color: var(--soft); font-size: .88rem; font-weight: 600; }
        tbody th { font-weight: 500; min-width: 7.5rem; }
        .n { text-align: right; }
        ul { margin: 0; padding: 0; list-style: none; }
        li { border-top: 1px solid var(--line); padding: .45rem 0; overflow-wrap: anywhere; }
        li:first-child { border-top: 0; }
        li small { color: var(--soft); display: block; }
        svg { width: 100%; height: 3.5rem; display: block; }
        polyline { fill: none; stroke: var(--accent); stroke-width: 2; vector-effect: non-scaling-stroke; }
        .empty { color: var(--soft); margin: 0; }
        footer { color: var(--soft); font-size: .88rem; padding-bottom: 1.5rem; }
        </style>
        </head>
        <body>
        <header>
        <h1>Bugle</h1>
        <span id="state" class="pill warn" role="status" aria-live="polite">loading</span>
        <span class="who" id="who"></span>
        <button id="hold" type="button" aria-pressed="false">Pause updates</button>
        </header>
        <main>
        <section id="trouble" class="bad" hidden aria-label="What is wrong"><ul id="reasons"></ul></section>
        <dl class="cards" aria-label="At a glance">
        <div><dt>Events a second</dt><dd id="rate">–</dd></div>
        <div><dt>Not complete</dt><dd id="lag">–</dd></div>
        <div><dt>Oldest of them</dt><dd id="age">–</dd></div>
        <div><dt>Time to drain</dt><dd id="drain">–</dd></div>
        <div><dt>Lanes busy</dt><dd id="busy">–</dd></div>
        <div><dt>Dead letters</dt><dd id="dead">–</dd></div>
        </dl>
        <section aria-labelledby="h-rate"><h2 id="h-rate">Events a second, last minutes</h2>
        <svg id="chart" role="img" aria-label="no data yet" viewBox="0 0 100 30"
         preserveAspectRatio="none"><polyline id="line" points=""/></svg></section>
        <section aria-labelledby="h-levers" id="s-levers" hidden><h2 id="h-levers">Held back by operators</h2>
        <ul id="levers"></ul></section>
        <section aria-labelledby="h-fleet"><h2 id="h-fleet">Fleet</h2><div class="scroll" tabindex="0"
         role="region" aria-labelledby="h-fleet"><table aria-labelledby="h-fleet"><thead><tr>
        <th scope="col">Replica</th><th scope="col">State</th><th scope="col" class="n">Events/s</th>
        <th scope="col" class="n">Accepted/s</th><th scope="col" class="n">Not complete</th>
        <th scope="col" class="n">Oldest</th><th scope="col" class="n">Partitions</th></tr></thead>
        <tbody id="fleet"></tbody></table></div></section>
        <section aria-labelledby="h-gate"><h2 id="h-gate">Gateways</h2><div class="scroll" tabindex="0"
         role="region" aria-labelledby="h-gate"><table aria-labelledby="h-gate"><thead><tr>
        <th scope="col">App, gateway</th><th scope="col">State</th><th scope="col" class="n">Accepted/s</th>
        <th scope="col" class="n">Other/s</th><th scope="col" class="n">p50</th>
        <th scope="col" class="n">p99</th><th scope="col" class="n">In flight</th></tr></thead>
        <tbody id="gateways"></tbody></table></div></section>
        <section aria-labelledby="h-out"><h2 id="h-out">Outcomes since the start</h2><div class="scroll"
         tabindex="0" role="region" aria-labelledby="h-out"><table aria-labelledby="h-out"><thead><tr>
        <th scope="col">Outcome</th><th scope="col" class="n">Targets</th>
        <th scope="col" class="n">Share</th></tr></thead><tbody id="outcomes"></tbody></table></div></section>
        <section aria-labelledby="h-back"><h2 id="h-back">Waiting in retry and parking topics</h2>
        <ul id="backlogs"></ul></section>
        <section aria-labelledby="h-cred"><h2 id="h-cred">Credentials and certificates</h2>
        <ul id="credentials"></ul></section>
        <section aria-labelledby="h-err"><h2 id="h-err">Last warnings and errors</h2>
        <ul id="troubles"></ul></section>
        </main>
        <footer>Every two seconds from <a href="status.json">status.json</a>; rates and latencies are of the
        last half minute. <a href="metrics">metrics</a>, <a href="readyz">readyz</a>.</footer>
        <script>
        "use strict";
        const $ = id => document.getElementById(id);
        const keep = 30000, shown = 150, past = [], rates = [];
        let held = false, failures = 0;
        function text(id, value) { if ($(id).textContent !== value) $(id).textContent = value; }
        function make(name, value, kind) {
          const e = document.createElement(name);
          if (value !== undefined) e.textContent = value;
          if (kind) e.className = kind;
          return e;
        }
        function span(ms) {
          if (ms < 1000) return Math.round(ms) + " ms";
          const s = ms / 1000;
          if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
          if (s < 3600) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
          if (s < 86400) return Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " min";
          return s >= 86400 && s < 86401 ? "a day or more" : Math.floor(s / 86400) + " d";
        }
        function number(n) { return Math.round(n).toLocaleString("en"); }
        function rate(n) { return n >= 100 ? number(n) : n.toFixed(n >= 10 ? 0 : n > 0 ? 1 : 0); }
        function sum(o, but) {
          return Object.entries(o).reduce((t, [k, v]) => k === but ? t : t + v, 0);
        }
        function quantile(now, then, bounds, q) {
          const counts = now.map((n, i) => n - (then ? then[i] || 0 : 0));
          const all = counts.reduce((a, b) => a + b, 0);
          if (!all) return "–";
          let seen = 0;
          for (let i = 0; i < counts.length; i++) {
            seen += counts[i];
            if (seen >= all * q) return i < bounds.length ? "≤ " + span(bounds[i]) : "> " + span(bounds[i - 1]);
          }
        }
        function fill(id, items, none) {
          $(id).replaceChildren(...(items.length ? items : [make($(id).tagName === "UL" ? "li" : "tr")]));
          if (!items.length) {
            const cell = $(id).tagName === "UL" ? $(id).firstChild : $(id).firstChild.appendChild(make("td"));
            cell.textContent = none;
            cell.className = "empty";
            if (cell.tagName === "TD") cell.colSpan = 7;
          }
        }
        function row(head, cells) {
          const r = make("tr"), h = make("th", head);
          h.scope = "row";
          r.append(h, ...cells);
          return r;
        }
        function show(s) {
          past.push(s);
          while (past.length > 2 && s.now - past[0].now > keep) past.shift();
          const old = past[0], last = past[past.length - 2] || s;
          const seconds = Math.max((s.now - old.now) / 1000, 0.001);
          const per = (now, then) => Math.max(now - then, 0) / seconds;
          const ok = s.ready && !s.problems.length;
          text("state", !s.ready ? "not ready" : ok ? "working" : "needs a look");
          $("state").className = "pill " + (!s.ready ? "bad" : ok ? "good" : "warn");
          text("who", s.instance + " in " + s.group + ", version " + s.version + ", up "
            + span(s.now - s.started_at) + ", " + s.partitions + " partitions"
            + (s.index_writer ? ", writes the index" : ""));
          document.title = "Bugle: " + $("state").textContent;
          $("trouble").hidden = !s.problems.length;
          $("reasons").replaceChildren(...s.problems.map(p => {
            const li = make("li", p.text);
            li.append(make("small", "what to do: deploy/runbooks/" + p.page + ".md"));
            return li;
          }));
          const time = ms => new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC";
          $("s-levers").hidden = !s.levers.length;
          $("levers").replaceChildren(...s.levers.map(l => {
            const what = l.lever ? l.lever + " " + l.value : "all events";
            const li = make("li");
            li.append(make("span", l.action === "pause" ? "paused" : "skipped", "pill warn"), " ", what
              + (l.before ? " from before " + time(l.before) : ""),
              make("small", "since " + time(l.at) + (l.until ? ", until " + time(l.until) : "")
                + (l.by ? ", by " + l.by : "") + (l.reason ? ": " + l.reason : "")));
            return li;
          }));
          fill("fleet", s.fleet.map(r => {
            const cell = make("td");
            cell.append(r.stale ? make("span", "stale", "pill bad") : !r.ready ? make("span", "not ready", "pill bad")
              : r.problems.length ? make("span", "needs a look", "pill warn") : make("span", "working", "pill good"));
            if (r.stale) cell.append(make("small", " for " + span(s.now - r.at)));
            return row(r.instance + (r.index_writer ? ", writes the index" : ""), [cell,
              make("td", rate(r.events_per_minute / 60), "n"), make("td", rate(r.accepted_per_minute / 60), "n"),
              make("td", number(r.lag_records), "n"), make("td", r.lag_ms ? span(r.lag_ms) : "–", "n"),
              make("td", number(r.partitions), "n")]);
          }), "no replica has reported yet");
          text("rate", rate(per(s.events_total, old.events_total)));
          text("lag", number(s.lag_records));
          text("age", s.lag_records ? span(s.lag_ms) : "–");
          $("drain").replaceChildren(s.drain_ms ? span(s.drain_ms) : "–",
            ...(s.drain_ms ? [make("small", "held back by " + s.bottleneck.replace("_", " "))] : []));
          const busy = s.lanes_busy_ms - old.lanes_busy_ms, idle = s.lanes_idle_ms - old.lanes_idle_ms;
          text("busy", busy + idle > 0 ? Math.round(100 * busy / (busy + idle)) + " %" : "–");
          text("dead", number(s.dead_letters));
          if (s !== last) {
            rates.push(Math.max(s.events_total - last.events_total, 0) * 1000 / Math.max(s.now - last.now, 1));
            if (rates.length > shown) rates.shift();
            const top = Math.max(...rates, 1);
            $("line").setAttribute("points", rates.map((r, i) =>
              (100 - (rates.length - 1 - i) * 100 / (shown - 1)).toFixed(2) + ","
              + (29 - 28 * r / top).toFixed(2)).join(" "));
            $("chart").setAttribute("aria-label", "now " + rate(rates[rates.length - 1])
              + " events a second, at most " + rate(top));
          }
          fill("gateways", s.gateways.map((g, i) => {
            const o = old.gateways[i] || g;
            const state = g.breakers_open ? make("span", "held back", "pill bad")
              : g.refused ? make("span", "refused", "pill bad")
              : g.waiting ? make("span", "at its limit", "pill warn") : make("span", "working", "pill good");
            const cell = make("td");
            cell.append(state);
            const env = g.environment === "none" ? "" : " " + g.environment;
            return row(g.app + ", " + g.gateway + env, [cell,
              make("td", rate(per(g.outcomes.accepted || 0, o.outcomes.accepted || 0)), "n"),
              make("td", rate(per(sum(g.outcomes, "accepted"), sum(o.outcomes, "accepted"))), "n"),
              make("td", quantile(g.latency, o.latency, s.latency_bounds_ms, 0.5), "n"),
              make("td", quantile(g.latency, o.latency, s.latency_bounds_ms, 0.99), "n"),
              make("td", g.in_flight + " of " + g.limit, "n")]);
          }), "no gateway is configured");
          const all = sum(s.outcomes);
          fill("outcomes", Object.entries(s.outcomes).filter(e => e[1]).sort((a, b) => b[1] - a[1])
            .map(([k, v]) => row(k.replaceAll("_", " "), [make("td", number(v), "n"),
              make("td", (100 * v / all).toFixed(1) + " %", "n")])), "nothing yet");
          fill("backlogs", Object.entries(s.backlogs).filter(e => e[1])
            .map(([k, v]) => make("li", k + ": " + number(v))), "nothing waits");
          fill("credentials", s.credentials.map(c => {
            const li = make("li", c.app + ", " + c.gateway + ": ");
            li.append(c.refused ? make("span", "refused", "pill bad")
              : c.token_age_ms ? "token " + span(c.token_age_ms) + " old" : "no token asked for yet");
            return li;
          }).concat(s.certificates.map(c => {
            const li = make("li", c.setting + ": ");
            const words = c.days_left === null ? "unreadable" : c.days_left < 0 ? "has ended"
              : c.days_left + " days left";
            li.append(make("span", words, "pill " + (c.days_left === null || c.days_left < 7 ? "bad" : c.days_left < 30 ? "warn" : "good")));
            return li;
          })), "none");
          fill("troubles", s.troubles.map(t => {
            const li = make("li");
            li.append(make("span", t.level, "pill " + (t.level === "error" ? "bad" : "warn")), " ", t.message,
              make("small", time(t.at) + " "
                + t.fields + (t.suppressed ? ", " + t.suppressed + " more like it" : "")));
            return li;
          }), "none since the start");
        }
        async function turn() {
          if (!held) {
            try {
              const answer = await fetch("status.json", { cache: "no-store" });
              if (!answer.ok) throw new Error(answer.status);
              const status = await answer.json();
              failures = 0;
              if (status.v) show(status);
            } catch (e) {
              if (++failures > 1) {
                text("state", "no answer");
                $("state").className = "pill bad";
              }
            }
          }
          setTimeout(turn, 2000);
        }
        $("hold").addEventListener("click", () => {
          held = !held;
          $("hold").setAttribute("aria-pressed", held);
          text("hold", held ? "Go on" : "Pause updates");
        });
        turn();
        </script>
        </body>
        </html>
        """#
}
