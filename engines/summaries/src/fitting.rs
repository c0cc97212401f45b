//! How much of a text fits into a number of tokens.
//!
//! Counting is expensive, and tokens are nearly in proportion to bytes. So [`largest_within`] guesses
//! by proportion and halves what is left only if that does not help.

use contexture_engine_api::Services;

/// How many guesses are made by proportion before the rest is halved.
const GUESSES: u32 = 8;

/// Finds the largest size of at most `all` that has at most `room` tokens. `tokens` counts those of a
/// size, and must not fall if the size rises. The result may be smaller if it leaves less than a 64th
/// of the room free. It is 0 if no size fits.
pub fn largest_within(all: usize, room: u64, mut tokens: impl FnMut(usize) -> u64) -> usize {
    let (mut fits, mut exceeds) = (0, all.saturating_add(1));
    // Most tokens have about four bytes.
    let mut size = all.min(usize::try_from(room).unwrap_or(all).saturating_mul(4));
    for guess in 1_u32.. {
        let used = tokens(size);
        if used > room {
            exceeds = size;
        } else {
            fits = size;
            if size == all || room - used <= room / 64 {
                break;
            }
        }
        // A size that exceeds the room by little is no use, so each guess aims a little below it.
        let next = (size as f64 * (room as f64 / used.max(1) as f64) * 0.99) as usize;
        let is_between = fits < next && next < exceeds;
        size = match guess < GUESSES && is_between {
            true => next,
            // Far above what fits, counting costs most and says least.
            false => fits + ((exceeds - fits) / 2).min(fits / 4 + 64),
        };
        if size == fits {
            break;
        }
    }
    fits
}

/// Returns the longest beginning of a text with at most `tokens` tokens, as [`largest_within`] finds
/// it. No character is split.
pub fn beginning_within<'t>(text: &'t str, tokens: u64, services: &Services) -> &'t str {
    let beginning = |size| &text[..text.floor_char_boundary(size)];
    beginning(largest_within(text.len(), tokens, |size| {
        services.count_tokens(beginning(size))
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_beginning_fits_and_few_more_tokens_would_not(
            text in "(\\PC|word |漢|\\n\\n){0,400}", tokens in 0u64..300,
        ) {
            let services = Services::none();
            let beginning = beginning_within(&text, tokens, &services);
            let used = services.count_tokens(beginning);
            prop_assert!(used <= tokens && text.starts_with(beginning));
            // A character may have several tokens, and one more letter may make two words one.
            let least = tokens.min(services.count_tokens(&text)).saturating_sub(12);
            prop_assert!(used >= least, "{used} of {tokens}");
        }
    }

    #[test]
    fn few_sizes_are_counted() {
        for (all, room) in [
            (10_000_000, 1_000),
            (40_000, 9_000),
            (100, 1_000),
            (5_000, 0),
        ] {
            for bytes_a_token in [1, 3, 12] {
                let mut counted = 0;
                let size = largest_within(all, room, |size| {
                    counted += 1;
                    size as u64 / bytes_a_token
                });
                assert!(size as u64 / bytes_a_token <= room);
                assert!(counted < 16, "{counted} for {all} and {room}");
            }
        }
    }
}
