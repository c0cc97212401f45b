//! Variable-length unsigned integers: seven bits per byte, the lowest bits first, with the high bit
//! set in every byte except the last.

/// Appends `value` in one to ten bytes. Small numbers are short.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads one integer and moves `bytes` past it. Returns None if the input ends before the integer
/// does.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

/// Reads an integer that is a size or an index. Returns None if it does not fit into `usize`, in
/// addition to the cases of [`take`].
pub(crate) fn take_usize(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(take(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back(values in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut out = Vec::new();
            for value in &values {
                super::put(&mut out, *value);
            }
            let mut rest = out.as_slice();
            for value in values {
                prop_assert_eq!(super::take(&mut rest), Some(value));
            }
            prop_assert_eq!(super::take(&mut rest), None);
        }
    }
}
