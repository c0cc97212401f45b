//! The stand-in as a program, to be asked by hand: `contexture-stand-in [PORT] [WINDOW]`. It plays the coder, and tells
//! on stderr what came and what it refused.

use std::time::Duration;

use contexture_stand_in::{Options, StandIn};

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|text| text.parse::<u64>().ok());
    let port = numbers
        .next()
        .flatten()
        .and_then(|port| port.try_into().ok())
        .unwrap_or(0);
    let window = numbers.next().flatten();
    let provider = StandIn::with(Options {
        port,
        window,
        ..Options::default()
    });
    println!("{}", provider.base_url());
    let (mut told, mut refused) = (0, 0);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        for request in provider.requests().iter().skip(told) {
            let query = request.query.as_deref().unwrap_or_default();
            eprintln!(
                "{} {} {query} {} bytes, {}",
                request.method,
                request.path,
                request.body.len(),
                request.model()
            );
            told += 1;
        }
        let all = provider.violations();
        for violation in all.iter().skip(refused) {
            eprintln!("refused: {}: {}", violation.rule.name, violation.message);
        }
        refused = all.len();
    }
}
