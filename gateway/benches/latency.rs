//! Measures what a gateway adds to a request on a warm session, compared with direct requests to the same server.
//! Prints tables with the time to the end of an answer and the time to the first byte of a stream.
//!
//! Client, gateways and provider run as separate processes, as they do in production. In a single process they would
//! share a runtime and caches, and the figures would look too good. The setups are measured alternately, a few requests
//! at a time, so that other load on the machine affects all of them alike. nginx is measured too if it is installed.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::Duration;

use support::processes::{Process, ask, bodies, other_role};
use tokio::runtime::Builder;

/// The times of the turns of warm sessions for each setup, without the first two turns.
async fn measure(
    ways: &[(&str, &str)],
    bodies: &[String],
    rounds: usize,
) -> Vec<Vec<(Duration, Duration)>> {
    let mut times = vec![Vec::new(); ways.len()];
    let clients: Vec<reqwest::Client> = (ways.iter())
        .map(|_| {
            reqwest::Client::builder()
                .no_proxy()
                .tcp_nodelay(true)
                .build()
                .unwrap()
        })
        .collect();
    for round in 0..rounds {
        let session = format!("{}-{round}", bodies[0].len());
        for ((http, (_, base)), times) in clients.iter().zip(ways).zip(&mut times) {
            for (turn, body) in bodies.iter().enumerate() {
                let took = ask(http, base, &session, body).await;
                if turn > 1 {
                    times.push(took);
                }
                // An agent pauses before its next request.
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    }
    times
}

fn main() {
    if other_role() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let provider = Process::start("provider");
    let upstream = format!(
        "model: {{context_length: 1000000}}\nupstream: {{anthropic: {{base_url: \"{}\"}}}}\n",
        provider.base
    );
    let configured = [
        ("observe", "gateway: {mode: observe}\n"),
        ("compressor", ""),
        ("lcm", "context: {engine: lcm}\n"),
    ];
    let gateways = configured.map(|(name, config)| {
        let process = Process::gateway(&home.path().join(name), &format!("{config}{upstream}"));
        (name, process)
    });
    let nginx = Process::nginx(home.path(), &provider.base);
    let mut ways = vec![("direct", provider.base.as_str())];
    ways.extend(nginx.as_ref().map(|nginx| ("nginx", nginx.base.as_str())));
    ways.extend(
        gateways
            .iter()
            .map(|(name, process)| (*name, process.base.as_str())),
    );
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    println!(
        "{:>14} {:>11} {:>10} {:>10} {:>10} {:>10}",
        "body", "way", "p50", "p99", "added p50", "added p99"
    );
    for (name, size, turns, rounds, is_stream) in [
        ("2 KB", 1_000, 12, 40, false),
        ("2 KB, stream", 1_000, 12, 40, true),
        ("20 KB", 20_000, 40, 8, false),
        ("500 KB", 500_000, 40, 2, false),
    ] {
        let bodies = bodies(size, turns, is_stream);
        let all = runtime.block_on(measure(&ways, &bodies, rounds));
        // For a stream the first byte counts, for a whole answer the last.
        let times = all.into_iter().map(|times| {
            let mut times: Vec<f64> = times
                .into_iter()
                .map(|(first, last)| if is_stream { first } else { last })
                .map(|time| time.as_secs_f64() * 1e3)
                .collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            (at(0.5), at(0.99))
        });
        let mut direct = None;
        for ((way, _), (p50, p99)) in ways.iter().zip(times) {
            let (d50, d99) = *direct.get_or_insert((p50, p99));
            println!(
                "{name:>14} {way:>11} {p50:>7.2} ms {p99:>7.2} ms {:>7.2} ms {:>7.2} ms",
                p50 - d50,
                p99 - d99
            );
        }
    }
}
