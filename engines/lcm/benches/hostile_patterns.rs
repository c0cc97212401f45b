//! What hostile patterns cost: each pattern over each text of a megabyte is refused with a message, or answered within
//! 200 ms for each megabyte. The exit code is 1 if one is not.
//!
//! `cargo bench -p contexture-lcm --bench hostile_patterns` (`-- --all` prints every pair)
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/ingest/mod.rs"]
mod ingest;

use std::time::{Duration, Instant};

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::search::{Ask, Mode, Pattern, Query, Scope};
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};
use ingest::Ingest;

const MEGABYTE: usize = 1_000_000;
const LIMIT: Duration = Duration::from_millis(200);

/// A generator of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn text(&mut self, from: &[char]) -> String {
        let mut text = String::with_capacity(MEGABYTE + 4);
        while text.len() < MEGABYTE {
            text.push(from[self.below(from.len())]);
        }
        text
    }
}

fn texts() -> Vec<(&'static str, String)> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let chars = |text: &str| text.chars().collect::<Vec<char>>();
    let mut words = String::new();
    while words.len() < MEGABYTE {
        for _ in 0..=random.below(9) {
            words.push(char::from(b'a' + random.below(26) as u8));
        }
        words.push(if random.below(12) == 0 { '\n' } else { ' ' });
    }
    let han: Vec<char> = ('\u{4e00}'..'\u{5600}').collect();
    let hex = random.text(&chars("0123456789abcdef"));
    vec![
        ("random words", words),
        ("random a and b", random.text(&chars("ab"))),
        ("hexadecimal", hex),
        ("one letter", "a".repeat(MEGABYTE)),
        ("a unit repeated", "ab ".repeat(MEGABYTE / 3)),
        (
            "near misses",
            format!("{}c", "a".repeat(99)).repeat(MEGABYTE / 100),
        ),
        (
            "foo at all distances",
            (0..)
                .map(|n| format!("foo{} ", "x".repeat(n * 7 % 97)))
                .take(19_000)
                .collect(),
        ),
        ("Chinese", random.text(&han)),
        ("Chinese repeated", "数据库索引".repeat(MEGABYTE / 15)),
        (
            "mixed scripts",
            random.text(&chars("aÉß索ıſKΣςд한 0\u{301}\n-")),
        ),
    ]
}

fn patterns() -> Vec<String> {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut words = |count: usize, from: &str| {
        let from: Vec<char> = from.chars().collect();
        let words = (0..count).map(|_| {
            (0..6)
                .map(|_| from[random.below(from.len())])
                .collect::<String>()
        });
        words.collect::<Vec<_>>().join("|")
    };
    let mut patterns: Vec<String> = Vec::new();
    // Counted repetitions, of one part and of several, one in the other.
    for part in [
        "a", "[ab]", ".", r"\w", r"\pL", "(?:a|ab)", r"(?:\w|索)", "(?s:.)", r"[^\n]", r"\p{Han}",
    ] {
        for count in [
            "10", "100", "1000", "60000", "0,50", "0,900", "1,2000", "20,",
        ] {
            patterns.push(format!("{part}{{{count}}}b"));
            patterns.push(format!("a{part}{{{count}}}c"));
            patterns.push(format!("(?i:{part}){{{count}}}$"));
        }
        for (outer, inner) in [(10, 10), (30, 30), (100, 100), (1_000, 1_000)] {
            patterns.push(format!("(?:{part}{{{inner}}}){{{outer}}}z"));
            patterns.push(format!("(?:{part}{{0,{inner}}}c?){{0,{outer}}}z"));
        }
        patterns.push(format!("(?:{part}*)*z"));
        patterns.push(format!("(?:{part}+)+z"));
        patterns.push(format!("(?:{part}*?)*?z$"));
        patterns.push(format!(r"\b(?:{part}{{1,40}}\b ?){{1,30}}z"));
        patterns.push(format!("foo{part}{{0,150}}foo{part}{{0,150}}qux"));
    }
    // Alternations.
    for count in [10, 100, 1_000, 10_000] {
        for from in ["abcdefghij", "ab", "数据库索引一丁", "0123456789abcdef"] {
            let words = words(count, from);
            patterns.push(format!("(?i){words}"));
            patterns.push(format!("(?:{words})+!"));
            patterns.push(words);
        }
    }
    patterns.extend(
        [
            // What a lazy automaton has no room for.
            "[ab]*a[ab]{14}c",
            "(?:a|b)*a(?:a|b){500}c",
            "(?:[a-z]*[aeiou]){40}!",
            r"(\w+\s+){0,60}zzz",
            r"(?:\w*\d){20}!",
            // Dots, greedy and lazy.
            ".*.*.*=.*",
            ".*?.*?.*?=.*?",
            "(?s).*(.*)*=",
            ".*[^A-Z]|[A-Z]",
            "a.*?b.*?c.*?d.*?e.*?f!",
            "(?s).{0,300}foo.{0,300}bar",
            // Classes, with and without case.
            r"(?i)[\w&&[^\d_]]{1,300}!",
            r"(?i)\p{L}{3,400}\p{N}",
            r"[\p{Lu}\p{Lt}\p{Lo}]{5,90}\p{P}{4}",
            r"(?i)(?:ſ|k|ß|é|σ){2,80}!",
            r"[^a]{500}[^b]{500}!",
            // Edges.
            r"(?:\b\w{1,60}\b.?)*!",
            r"\B\w\B\w\B\w\B!",
            r"(?m)^(?:.*,){30}$",
            r"(?m)(?:^.*$\n?){200}!",
            r"(?mR)^.*$!",
            r"^(?:a?){500}a{500}$",
            "x*",
            "",
            "(?:)*",
            // What is not there.
            "(?=a)b",
            r"(a+)\1",
            "(?<!a)b",
        ]
        .map(str::to_owned),
    );
    for class in [r"\w", r"\pL", r"(?i)\p{Greek}", "[^a]", r"\p{Any}"] {
        patterns.push(class.repeat(200));
        patterns.push(format!("(?i){}", class.repeat(240)));
    }
    patterns
}

fn store_of(text: &str, directory: &tempfile::TempDir) -> (Store, SessionId) {
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    let store = ingest::open(directory.path(), settings).unwrap();
    let session = store.open_session("s").unwrap();
    let view = MessageView::new(MessageId(1), "user")
        .with_text(text)
        .with_raw(text);
    store.ingest(session, &[view]).unwrap();
    (store, session)
}

fn main() {
    let all = std::env::args().any(|argument| argument == "--all");
    let (mut runs, mut refused, mut misses) = (0, 0, 0);
    let mut slowest = (Duration::ZERO, String::new());
    let mut slowest_refusal = slowest.clone();
    for (name, text) in texts() {
        let directory = tempfile::tempdir().unwrap();
        let (store, session) = store_of(&text, &directory);
        let limit = LIMIT.mul_f64(text.len().max(MEGABYTE) as f64 / MEGABYTE as f64);
        for mode in [Mode::Regex, Mode::Literal, Mode::FullText] {
            for pattern in patterns() {
                let mut query =
                    Query::new(session, Ask::Pattern(Pattern::new(mode, pattern.as_str())));
                query.scope = Scope::Messages;
                let began = Instant::now();
                let answer = store.search(&query, &|| false);
                let took = began.elapsed();
                let shown: String = pattern.chars().take(60).collect();
                let label = format!("{mode:?} {shown:?} in {name}");
                runs += 1;
                let (is_refused, told) = match answer {
                    Ok(answer) => (false, format!("{} found", answer.total)),
                    Err(StoreError::Query(_)) => (true, "refused".to_owned()),
                    Err(error) => {
                        misses += 1;
                        println!("MISS {label}: {error}");
                        continue;
                    }
                };
                refused += usize::from(is_refused);
                if took > limit {
                    misses += 1;
                    println!("MISS {label}: {took:.0?}, {told}");
                } else if all {
                    println!("     {label}: {took:.1?}, {told}");
                }
                let slowest = match is_refused {
                    true => &mut slowest_refusal,
                    false => &mut slowest,
                };
                if took > slowest.0 {
                    *slowest = (took, label);
                }
            }
        }
    }
    println!(
        "{runs} searches of a megabyte: {} answered, {refused} refused, {misses} missed",
        runs - refused
    );
    println!("slowest answer:  {:.0?}, {}", slowest.0, slowest.1);
    println!(
        "slowest refusal: {:.0?}, {}",
        slowest_refusal.0, slowest_refusal.1
    );
    std::process::exit(i32::from(misses > 0));
}
