#![allow(clippy::unwrap_used)]
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

#[test]
fn there_are_as_many_caches_as_cores_and_those_of_panics_are_replaced() {
    static POOL: CachePool<u64> = CachePool::new();
    let made = AtomicUsize::new(0);
    let count = |at: u64| {
        let new = || {
            made.fetch_add(1, Ordering::Relaxed);
            0
        };
        POOL.with(new, |cache| {
            *cache += 1;
            assert!(!at.is_multiple_of(10), "the count fails");
            std::thread::sleep(Duration::from_micros(100));
        });
    };
    let threads = 2 * *MOST as u64;
    let failed = std::thread::scope(|scope| {
        let one = |_| {
            scope.spawn(|| {
                (0..100)
                    .filter(|at| catch_unwind(|| count(*at)).is_err())
                    .count()
            })
        };
        let all: Vec<_> = (0..threads).map(one).collect();
        all.into_iter()
            .map(|one| one.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(failed as u64, threads * 10);
    let caches = POOL.caches();
    assert!(caches.made <= *MOST);
    assert_eq!(caches.idle.len(), caches.made);
    assert!(made.load(Ordering::Relaxed) <= failed + *MOST);
}

#[test]
fn the_last_long_texts_are_counted_once() {
    let texts = LongTexts::new();
    let long = |letter: char| letter.to_string().repeat(LONG_TEXT);
    assert_eq!(texts.get_or_count(&long('a'), || 1), 1);
    assert_eq!(texts.get_or_count(&long('a'), || 2), 1);
    assert_eq!(texts.get_or_count(&long('b'), || 3), 3);
    assert_eq!(texts.get_or_count("short", || 4), 4);
    assert_eq!(texts.get_or_count("short", || 5), 5);
    for _ in 0..LONG_TEXTS {
        texts.get_or_count(&long('c'), || 6);
    }
    assert_eq!(texts.get_or_count(&long('a'), || 7), 1);
    for letter in ('A'..='Z')
        .chain('1'..='9')
        .chain('Α'..='Ρ')
        .chain('А'..='П')
    {
        texts.get_or_count(&long(letter), || 8);
    }
    assert_eq!(texts.get_or_count(&long('a'), || 9), 9);
}
