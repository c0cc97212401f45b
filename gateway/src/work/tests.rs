#![allow(clippy::unwrap_used)]

use std::sync::mpsc;

use super::*;

fn block_on(test: impl Future<Output = ()>) {
    runtime().unwrap().block_on(test);
}

#[test]
fn pieces_that_wait_hold_up_no_others() {
    block_on(async {
        let pool = WorkPool::default();
        let few = pool.threads.few;
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..few * 2 {
            let held = Arc::clone(&held);
            pool.spawn(move || {
                let _ = held.lock().unwrap().recv();
            });
        }
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        assert!(pool.threads.queue().busy > few);
        drop(release);
        pool.until_idle(Duration::from_secs(10)).await;
        assert_eq!(pool.threads.queue().busy, 0);
    });
}

#[test]
fn short_pieces_need_few_threads() {
    block_on(async {
        let pool = Arc::new(WorkPool::default());
        let all = (0..2_000).map(|number| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.run(move || number).await.unwrap() })
        });
        let all: Vec<_> = all.collect();
        for (number, one) in all.into_iter().enumerate() {
            assert_eq!(one.await.unwrap(), number);
        }
        pool.until_idle(Duration::from_secs(10)).await;
        let queue = pool.threads.queue();
        // A machine that is busy may be late.
        assert!(queue.idle.len() < pool.threads.most, "{}", queue.idle.len());
    });
}

#[test]
fn what_ends_a_request_comes_before_what_begins_one() {
    block_on(async {
        let pool = WorkPool::default();
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        // As many as there are threads, so that all later pieces wait.
        for _ in 0..pool.threads.most {
            let held = Arc::clone(&held);
            pool.spawn(move || {
                let _ = held.lock().unwrap().recv();
            });
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(what)
        };
        for begun in 0..20 {
            pool.spawn(note(begun));
        }
        let ended = pool.end(note(20));
        let release = async {
            tokio::task::yield_now().await;
            // One thread goes on.
            release.send(()).unwrap();
        };
        tokio::join!(ended, release).0.unwrap();
        assert_eq!(order.lock().unwrap()[0], 20);
    });
}

#[test]
fn a_panic_is_an_error_and_its_thread_goes_on() {
    block_on(async {
        let pool = WorkPool::default();
        for _ in 0..20 {
            let failed = pool.run(|| panic!("no")).await.map(|(): ()| ());
            assert_eq!(failed.unwrap_err().detail, "no");
            pool.spawn(|| panic!("no"));
        }
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
    });
}
