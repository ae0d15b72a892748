//! Compression of texts within an item (zlib).

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

const LEVEL: u8 = 6;
/// The longest text. The limit protects the memory of a function against a damaged item.
const LONGEST: usize = 64 << 20;

pub(crate) fn pack(text: &[u8]) -> Vec<u8> {
    compress_to_vec_zlib(text, LEVEL)
}

/// Returns the text of [`pack`], or `None` if the bytes are damaged.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    decompress_to_vec_zlib_with_limit(packed, LONGEST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_bytes_are_rejected() {
        let text = "units: ".repeat(500).into_bytes();
        let packed = pack(&text);
        assert!(packed.len() < 100, "{}", packed.len());
        assert_eq!(unpack(&packed), Some(text));
        for position in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[position] ^= 1;
            assert_eq!(unpack(&damaged), None, "{position}");
        }
        assert_eq!(unpack(&[]), None);
    }
}
