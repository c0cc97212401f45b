use super::*;

/// A log of one message in each wire message, with these bytes and ids.
fn log(of: &[(u64, u64)]) -> WireLog {
    let mut log = WireLog::default();
    for (raw, id) in of {
        let unit = WireEntry {
            origin: Origin::Said(MessageId(*id)),
            fingerprint: Fingerprint {
                identity: (*raw).into(),
                shape: 0,
            },
            wires: 0..1,
        };
        log.push(&[*raw], [unit]);
    }
    log
}

/// All logs of up to three wire messages, of two texts and two messages.
fn logs() -> Vec<Vec<(u64, u64)>> {
    let kinds = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let mut logs = vec![Vec::new()];
    for at in 0.. {
        let Some(log) = logs.get(at).filter(|log| log.len() < 3).cloned() else {
            return logs;
        };
        logs.extend(kinds.map(|kind| [&log[..], &[kind]].concat()));
    }
    logs
}

#[test]
fn what_is_unchanged_is_the_same_in_bytes_and_messages() {
    for before in &logs() {
        for after in &logs() {
            let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
            let (old, new) = (log(before), log(after));
            for kept in 0..=same {
                let found = old.unchanged(&new.raw, kept, &new.units[kept..]);
                assert_eq!(found, same, "{before:?} {after:?} {kept}");
            }
        }
    }
}
