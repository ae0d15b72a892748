//! Texts that are compressed within their item (zlib).

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

const LEVEL: u8 = 6;
/// Bytes of the longest text. An item is at most 400 KB, and a damaged one must not fill the memory of a function.
const LONGEST: usize = 64 << 20;

/// Compresses a text.
pub(crate) fn pack(text: &[u8]) -> Vec<u8> {
    compress_to_vec_zlib(text, LEVEL)
}

/// Returns the text of [`pack`]; `None` if the bytes are damaged.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    decompress_to_vec_zlib_with_limit(packed, LONGEST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_bytes_are_noticed() {
        let text = "units: ".repeat(500).into_bytes();
        let packed = pack(&text);
        assert!(packed.len() < 100, "{}", packed.len());
        assert_eq!(unpack(&packed), Some(text));
        for place in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[place] ^= 1;
            assert_eq!(unpack(&damaged), None, "{place}");
        }
        assert_eq!(unpack(&[]), None);
    }
}
