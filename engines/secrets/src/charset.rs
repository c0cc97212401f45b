//! Sets of characters, as bits that can be combined.

pub(crate) const DIGIT: u16 = 1;
const A_TO_F: u16 = 2;
const LOWER_REST: u16 = 4;
const UPPER: u16 = 8;
const UNDERSCORE: u16 = 16;
pub(crate) const DASH: u16 = 32;
pub(crate) const DOT: u16 = 64;
const BASE64_REST: u16 = 128;
const OTHER: u16 = 256;
pub(crate) const TILDE: u16 = 512;
const UPPER_A_TO_F: u16 = 1024;
const SIGN: u16 = 2048;

pub(crate) const HEX: u16 = DIGIT | A_TO_F;
pub(crate) const ANY_HEX: u16 = HEX | UPPER_A_TO_F;
pub(crate) const SMALL: u16 = HEX | LOWER_REST;
pub(crate) const CAPITALS: u16 = DIGIT | UPPER | UPPER_A_TO_F;
pub(crate) const ALNUM: u16 = SMALL | CAPITALS;
pub(crate) const WORD: u16 = ALNUM | UNDERSCORE | DASH;
pub(crate) const DOTTED: u16 = WORD | DOT;
pub(crate) const BASE64: u16 = ALNUM | BASE64_REST;
pub(crate) const TOKEN: u16 = DOTTED | BASE64_REST | OTHER | TILDE;
pub(crate) const SIGNS: u16 = TOKEN | SIGN;

static SETS: [u16; 256] = sets();

const fn sets() -> [u16; 256] {
    let mut sets = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        sets[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' => A_TO_F,
            b'g'..=b'z' => LOWER_REST,
            b'A'..=b'F' => UPPER_A_TO_F,
            b'G'..=b'Z' => UPPER,
            b'_' => UNDERSCORE,
            b'-' => DASH,
            b'.' => DOT,
            b'+' | b'/' | b'=' => BASE64_REST,
            b'~' => TILDE,
            b'%' | b'!' | b'$' | b':' | b'@' => OTHER,
            b'#' | b'&' | b'(' | b')' | b'*' | b',' | b';' | b'?' | b'[' | b']' | b'^' | b'|' => {
                SIGN
            }
            _ => 0,
        };
        byte += 1;
    }
    sets
}

pub(crate) fn is_in(byte: u8, set: u16) -> bool {
    SETS[usize::from(byte)] & set != 0
}
