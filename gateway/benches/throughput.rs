//! Measures how many requests a gateway handles in a second, and how long they take under load, beside direct requests
//! and nginx on the same machine in the same run.
//!
//! First, 50 clients send their next request as soon as they have an answer. That gives the highest rate. Then requests
//! come at a fixed rate, half of the gateway's highest, whether or not earlier ones were answered, and a request's time
//! begins when it was due (an open loop). The client that was idle the longest sends the next one. Client, gateway and
//! provider are processes of their own and share the cores, so the figures say how the ways compare, not what a machine
//! can do that runs one of them alone. The processor time that a way takes for a request hardly depends on what else runs.
//!
//! Arguments name the kinds of requests to measure, such as `"2 KB"`. Without any, all are measured.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::processes::{Process, ask, bodies, other_role};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

const CLIENTS: usize = 50;
/// How long each way is measured, at the highest rate and at the fixed one.
const TIME: Duration = Duration::from_secs(8);
/// The requests of a session.
const TURNS: usize = 20;

/// The requests of new sessions to one address.
#[derive(Clone)]
struct Load {
    http: reqwest::Client,
    base: String,
    bodies: Arc<Vec<String>>,
    sessions: Arc<AtomicU64>,
}

impl Load {
    fn new(base: &str, bodies: &Arc<Vec<String>>) -> Self {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true);
        Self {
            http: http.build().unwrap(),
            base: base.to_owned(),
            bodies: Arc::clone(bodies),
            sessions: Arc::default(),
        }
    }

    fn session(&self) -> String {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.bodies[0].len())
    }

    fn clients(&self) -> Vec<Client> {
        let client = |_| Client {
            load: self.clone(),
            session: self.session(),
            turn: 0,
        };
        (0..CLIENTS).map(client).collect()
    }

    /// The requests a second of clients that wait for nothing but their answers, and the number of
    /// requests. Then the clients, each in the middle of a session.
    async fn highest_rate(&self) -> (f64, u64, Vec<Client>) {
        let (began, mut clients) = (Instant::now(), JoinSet::new());
        for mut client in self.clients() {
            clients.spawn(async move {
                let mut answered = 0;
                while began.elapsed() < TIME {
                    client.ask().await;
                    answered += 1;
                }
                (client, answered)
            });
        }
        let (clients, answered): (_, Vec<u64>) = clients.join_all().await.into_iter().unzip();
        let answered = answered.iter().sum();
        let rate = answered as f64 / began.elapsed().as_secs_f64();
        (rate, answered, clients)
    }
}

/// A client that has one session after the other.
struct Client {
    load: Load,
    session: String,
    /// The number of its next request in the session.
    turn: usize,
}

impl Client {
    async fn ask(&mut self) {
        let load = &self.load;
        ask(
            &load.http,
            &load.base,
            &self.session,
            &load.bodies[self.turn],
        )
        .await;
        self.turn += 1;
        if self.turn == load.bodies.len() {
            (self.session, self.turn) = (load.session(), 0);
        }
    }
}

/// The times from when a request was due to the end of its answer, in milliseconds and sorted, at
/// this many requests a second. While all clients wait for answers, requests wait for a client. If
/// they began sessions instead, a short pause of the machine would begin hundreds, whose first
/// requests take several times as long as later ones, and the gateway would not catch up again.
async fn times_at(rate: f64, clients: Vec<Client>) -> Vec<f64> {
    let (idle, mut next) = mpsc::unbounded_channel();
    for client in clients {
        idle.send(client).unwrap();
    }
    let (began, mut requests) = (Instant::now(), JoinSet::new());
    for number in 0..(rate * TIME.as_secs_f64()) as u64 {
        let due = began + Duration::from_secs_f64(number as f64 / rate);
        sleep_until(due).await;
        let mut client: Client = next.recv().await.unwrap();
        let idle = idle.clone();
        requests.spawn(async move {
            client.ask().await;
            let time = due.elapsed();
            idle.send(client).unwrap();
            time.as_secs_f64() * 1e3
        });
    }
    let mut times = requests.join_all().await;
    times.sort_by(f64::total_cmp);
    times
}

/// The processor time that a process took for each of these requests, in microseconds. `before` is what it had taken
/// before them. Zero if the system does not say.
fn processor_time_for(process: &Process, before: Option<f64>, requests: u64) -> f64 {
    let took = process.processor_time().zip(before);
    took.map_or(0.0, |(now, before)| (now - before) * 1e6 / requests as f64)
}

fn main() {
    if other_role() {
        return;
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with("--"))
        .collect();
    let home = tempfile::tempdir().unwrap();
    let provider = Process::start("provider");
    let config = format!(
        "model: {{context_length: 1000000}}\nupstream: {{anthropic: {{base_url: \"{}\"}}}}\n",
        provider.base
    );
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let nginx = Process::nginx(home.path(), &provider.base);
    if nginx.is_none() {
        println!("nginx is not installed, so it is not measured");
    }
    println!(
        "{:>16} {:>10} {:>12} {:>9} {:>10}   at a fixed rate: {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "body",
        "way",
        "highest",
        "of nginx",
        "processor",
        "requests",
        "processor",
        "p50",
        "p90",
        "p99",
        "p99.9"
    );
    for (name, size, is_stream) in [
        ("2 KB", 1_000, false),
        ("2 KB, stream", 1_000, true),
        ("165 KB", 160_000, false),
        ("165 KB, stream", 160_000, true),
        ("400 KB", 390_000, false),
    ] {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let bodies = Arc::new(bodies(size, TURNS, is_stream));
        let gateway = Process::gateway(&home.path().join(name), &config);
        let first = runtime.block_on(async {
            let began = Instant::now();
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            ask(&http, &gateway.base, "first", &bodies[0]).await;
            began.elapsed()
        });
        let mut ways = vec![("direct", &provider)];
        ways.extend(nginx.as_ref().map(|nginx| ("nginx", nginx)));
        ways.push(("contexture", &gateway));
        let loads = ways
            .iter()
            .map(|(way, process)| (*way, *process, Load::new(&process.base, &bodies)));
        let rates: Vec<_> = loads
            .map(|(way, process, load)| {
                let before = process.processor_time();
                let (rate, requests, clients) = runtime.block_on(load.highest_rate());
                let took = processor_time_for(process, before, requests);
                (way, process, clients, rate, took)
            })
            .collect();
        let of_nginx = rates.iter().find(|(way, ..)| *way == "nginx");
        let of_nginx = of_nginx.map(|(.., rate, _)| *rate);
        let half = rates.last().map_or(0.0, |(.., rate, _)| rate / 2.0);
        for (way, process, clients, rate, took) in rates {
            let before = process.processor_time();
            let times = runtime.block_on(times_at(half, clients));
            let at_half = processor_time_for(process, before, times.len() as u64);
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            let ratio = of_nginx.map_or("–".to_owned(), |of| format!("{:.2}", rate / of));
            println!(
                "{name:>16} {way:>10} {rate:>8.0} /s {ratio:>9} {took:>7.0} µs   {half:>16.0} /s {:>8} {at_half:>7.0} µs \
                 {:>6.2} ms {:>6.2} ms {:>6.2} ms {:>6.2} ms",
                times.len(),
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999)
            );
        }
        let memory = gateway.peak_memory().map_or(0, |bytes| bytes >> 20);
        println!(
            "{name:>16} the first request of a new gateway {:.1} ms, its peak memory {memory} MB",
            first.as_secs_f64() * 1e3
        );
    }
}
