//! Compressed texts, and the dictionary that the texts of a session share.
//!
//! Each text is compressed on its own and has a checksum, so one damaged byte costs one text. But
//! messages are short, and most of what they consist of was in an earlier one: the JSON around
//! them, the tools, the paths, the words. A [`Dictionary`] holds what the first texts of a session
//! have in common, and later ones are compressed with it. They then take a third to a half less
//! space, and no more time.
//!
//! Start with [`Packed`]. zstd stores with each text which dictionary it needs, if any. A writer
//! collects [`Samples`] until they are enough for a dictionary. When that happens and where it is
//! stored is decided in `record`.

use std::cell::RefCell;
use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;
use zstd::zstd_safe::{
    CCtx, CDict, DCtx, DDict, compress_bound, get_dict_id_from_dict, get_dict_id_from_frame,
    get_error_name,
};

use crate::store::Packed;

// Of a real session's messages of 1.2 KB level 1 takes 8 us each and leaves 0.415 of the bytes, level 3
// takes 10 us and leaves 0.404, level 4 takes 17 us and leaves 0.388, level 6 takes 49 us and
// leaves 0.381. Without a dictionary level 4 takes 16 us and leaves 0.498.
const LEVEL: i32 = 4;

/// The largest size of a stored text in bytes. A row that claims more is damaged, and reading it
/// would allocate that much.
const MAX_BYTES: i64 = 1 << 30;

/// How many bytes of texts a dictionary is made of. A real session of 600 KB takes 0.42 of its bytes
/// with 32 or 64 KB and 0.44 with 128 KB, because the samples themselves are compressed without it. A
/// longer one takes 0.185 with 32 KB, and 0.178 with 64 or 128 KB.
const SAMPLE_BYTES: usize = 64 << 10;

/// How many bytes of one text are a sample. The dictionary is then made of many texts, also if one
/// of them is a file.
const BYTES_OF_TEXT: usize = 4 << 10;

/// The size of a dictionary in bytes. It takes about 3.5 KB in the store, twice. With 16 KB the real
/// session of 600 KB takes 0.45 of its bytes.
const DICTIONARY_BYTES: usize = 8 << 10;

impl Packed {
    /// Compresses a text, with a dictionary if there is one. The length and the checksum are those
    /// of the text itself, so they also show whether it was decompressed right.
    ///
    /// # Errors
    /// zstd cannot allocate what it needs.
    pub(crate) fn of(text: &[u8], encoder: Option<&CDict<'_>>) -> io::Result<Self> {
        Ok(Self {
            bytes: text.len() as i64,
            checksum: xxh3_64(text).cast_signed(),
            data: compress(text, encoder)?,
        })
    }

    /// The number of the dictionary without which the text cannot be read. `None` if it needs none.
    pub(crate) fn needs(&self) -> Option<NonZeroU32> {
        get_dict_id_from_frame(&self.data)
    }

    /// Decompresses the text. Returns `None` if the length or the checksum does not match, so that
    /// damage is never taken for text, or if it needs another dictionary.
    pub(crate) fn text(&self, dictionary: Option<&Dictionary>) -> Option<String> {
        String::from_utf8(self.content(dictionary)?).ok()
    }

    fn content(&self, dictionary: Option<&Dictionary>) -> Option<Vec<u8>> {
        let size = usize::try_from(self.bytes).ok();
        let size = size.filter(|_| self.bytes <= MAX_BYTES)?;
        let decoder = dictionary.map(|dictionary| &dictionary.decoder);
        let content = decompress(&self.data, size, decoder).ok()?;
        (xxh3_64(&content).cast_signed() == self.checksum).then_some(content)
    }
}

/// What the texts of a session have in common.
pub(crate) struct Dictionary {
    bytes: Vec<u8>,
    decoder: DDict<'static>,
}

impl Dictionary {
    fn new(bytes: Vec<u8>) -> Option<Self> {
        let decoder = DDict::try_create(&bytes)?;
        Some(Self { bytes, decoder })
    }

    /// Reads a stored dictionary. `None` if it is damaged.
    pub(crate) fn of(packed: &Packed) -> Option<Self> {
        Self::new(packed.content(None)?)
    }

    /// The dictionary that two stored copies hold, and whether they are as they should be: both are
    /// sound, or there are none.
    pub(crate) fn of_copies(copies: [Option<&Packed>; 2]) -> (Option<Self>, bool) {
        let is_stored = copies.each_ref().map(Option::is_some);
        let [first, second] = copies.map(|copy| copy.and_then(Self::of));
        let is_read = [first.is_some(), second.is_some()];
        let is_whole = is_stored == is_read && is_stored[0] == is_stored[1];
        (first.or(second), is_whole)
    }

    /// The form in which it is stored.
    pub(crate) fn packed(&self) -> io::Result<Packed> {
        Packed::of(&self.bytes, None)
    }

    /// Its number, which texts that need it have.
    pub(crate) fn id(&self) -> Option<NonZeroU32> {
        get_dict_id_from_dict(&self.bytes)
    }

    /// What texts are compressed with. It takes 150 KB and some 40 us to make, so each thread keeps
    /// the one of its last write, which is mostly of the same session.
    pub(crate) fn encoder(&self) -> Option<Rc<CDict<'static>>> {
        ENCODER.with_borrow_mut(|kept| {
            if let Some((bytes, encoder)) = kept
                && *bytes == self.bytes
            {
                return Some(Rc::clone(encoder));
            }
            let encoder = Rc::new(CDict::try_create(&self.bytes, LEVEL)?);
            *kept = Some((self.bytes.clone(), Rc::clone(&encoder)));
            Some(encoder)
        })
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dictionary").field(&self.id()).finish()
    }
}

/// The beginnings of texts, from which a dictionary is made as soon as they are enough.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Samples {
    /// Adds a text. Returns whether there are enough now.
    pub(crate) fn add(&mut self, text: &str) -> bool {
        let sample = text.as_bytes();
        let sample = sample.get(..BYTES_OF_TEXT).unwrap_or(sample);
        self.bytes.extend_from_slice(sample);
        self.sizes.push(sample.len());
        self.bytes.len() >= SAMPLE_BYTES
    }

    /// Makes a dictionary, which takes 10 to 20 ms. `None` if the texts have too little in common.
    pub(crate) fn dictionary(&self) -> Option<Dictionary> {
        let bytes = zstd::dict::from_continuous(&self.bytes, &self.sizes, DICTIONARY_BYTES);
        // Without a number a text would not say that it needs the dictionary.
        let dictionary = Dictionary::new(bytes.ok()?)?;
        dictionary.id().is_some().then_some(dictionary)
    }
}

thread_local! {
    // A context takes longer to make than a message to unpack, so each thread keeps its own.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    // The bytes of the dictionary, and what is made of them.
    static ENCODER: RefCell<Option<(Vec<u8>, Rc<CDict<'static>>)>> = const { RefCell::new(None) };
}

fn compress(bytes: &[u8], encoder: Option<&CDict<'_>>) -> io::Result<Vec<u8>> {
    let mut data = Vec::with_capacity(compress_bound(bytes.len()));
    COMPRESSOR.with_borrow_mut(|kept| {
        let context = match kept {
            Some(context) => context,
            None => kept.insert(CCtx::try_create().ok_or_else(no_memory)?),
        };
        let done = match encoder {
            Some(encoder) => context.compress_using_cdict(&mut data, bytes, encoder),
            None => context.compress(&mut data, bytes, LEVEL),
        };
        done.map_err(failure)
    })?;
    Ok(data)
}

/// Decompresses data to at most `size` bytes.
fn decompress(data: &[u8], size: usize, decoder: Option<&DDict<'_>>) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(size);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let context = match kept {
            Some(context) => context,
            None => kept.insert(DCtx::try_create().ok_or_else(no_memory)?),
        };
        let done = match decoder {
            Some(decoder) => context.decompress_using_ddict(&mut text, data, decoder),
            None => context.decompress(&mut text, data),
        };
        done.map_err(failure)
    })?;
    Ok(text)
}

fn no_memory() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

fn failure(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

#[cfg(test)]
mod tests;
