//! Parities computed by other programs.

use nand::ecc::{Corrected, Layout, Shape, Source};

/// Bytes of the message, primitive polynomial, strength, whether the lowest bit of a byte is first, and the parity as
/// bchlib 2.1.3 (a copy of Linux's lib/bch.c) computes it.
const OF_BCHLIB: &[(usize, u32, u32, bool, &str)] = &[
    (512, 0x201b, 4, false, "34afe687f42740"),
    (512, 0x201b, 8, false, "ad6ff2249a096b24ec27e4ca04"),
    (
        512,
        0x201b,
        16,
        false,
        "8e2246448d25c4410f638c7886408ac156d8920c1b90e13b615a",
    ),
    (
        512,
        0x201b,
        24,
        false,
        "1dfc2fcd71dd9f8588a6e503cb5a1ff535841a9880441697719f28c27bc298de96c0fbacabb747",
    ),
    (
        512,
        0x201b,
        40,
        false,
        "c7876ca7b32ae7a5623b07f93c9fde36efdc4d7514637f9ba54677437066c0a0613ff85a7d3d663187d32c25e8b70c60b471db3f01b3880a3aead10dfec217ff51",
    ),
    (512, 0x201b, 8, true, "377c888078bd64cf75788aba7d"),
    (512, 0x201b, 4, true, "01ec0584b85009"),
    (1024, 0x402b, 4, false, "791e52adbb7979"),
    (1024, 0x402b, 8, false, "91af84bc6d893275c2010bae1d4c"),
    (
        1024,
        0x402b,
        16,
        false,
        "43ec068f84126e49b9e1fc0c08db20fa6f84ab6a496251c318fe1f08",
    ),
    (
        1024,
        0x402b,
        24,
        false,
        "8465b2c64f6c7dd6b507fa9cf259517b40433e591851a307678ddbd2612f1eab76ead68144349238a708",
    ),
    (
        1024,
        0x402b,
        40,
        false,
        "9c38a255b7b894574b34052b42b5375e4910c8e03a8e33fb2928ce7f7038420cb60a9b2acb190bf32dddb05d699a2399454fb532cda35d223801bab2bc21d51221e377e413be",
    ),
    (
        1024,
        0x402b,
        24,
        true,
        "430e5244cee602c85b1f30bc689e43484c9786bd9f19c4df37792921bc95532f04aa176f3aa9bff09328",
    ),
    (
        1024,
        0x4443,
        24,
        true,
        "27b8e6febb00c15bdeaae7575c681e07872aadbf11311a64b892e126a5115f6546d43a775351d5607bd9",
    ),
    (
        1024,
        0x5803,
        40,
        true,
        "cd88caa4ca66dc2689a52c2268195e7d16dcd1b56c3f6d1d83e5ad44ce4135e3b7531bdceebe36e01fbbdccb607e8b9fc56373afa31f8018da6463e4325b38c2a7acb5064c50",
    ),
    (512, 0x5803, 8, false, "ebb897a1d748930f534c2cf9711e"),
    (
        2048,
        0x8003,
        16,
        false,
        "6b32d5f8bcc0178ae57a48cd474ce05c78a3138039ce997f4868f8e831a1",
    ),
];

fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digits).collect()
}

fn message(bytes: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * at * 7 + at * 13 + 5) % 251).expect("below 251");
    (0..bytes).map(byte).collect()
}

/// Corrects one raw page; returns its data, the corrected bits and the failed steps.
fn corrected(raw: &[u8], layout: &Layout) -> (Vec<u8>, u64, u64) {
    let page = Corrected::new(raw, 0..raw.bytes(), layout.clone()).expect("a possible layout");
    let mut data = Vec::new();
    let summary = page.copy(&mut data, &mut |_| {}).expect("memory");
    (data, summary.corrected_bits, summary.failed_steps)
}

#[test]
fn parities_of_the_kernels_library_fit_and_correct() {
    for (bytes, polynomial, strength, lowest_first, parity) in OF_BCHLIB {
        let field = u32::BITS - 1 - polynomial.leading_zeros();
        let order = if *lowest_first { "lsb" } else { "msb" };
        let text = format!("bch{strength}/{bytes},{order},mask=none,field={field},poly={polynomial:#x}");
        let parity = hex(parity);
        let shape = Shape {
            page_bytes: u32::try_from(*bytes).unwrap(),
            oob_bytes: u32::try_from(parity.len()).unwrap(),
        };
        let layout = Layout::parse(&text, Some(shape)).unwrap();
        let data = message(*bytes);
        let raw = [&data[..], &parity].concat();
        assert_eq!(corrected(&raw, &layout), (data.clone(), 0, 0), "{text}");
        // Wrong bits in data and parity, up to the strength and one more.
        let mut wrong = raw.clone();
        let strength = usize::try_from(*strength).unwrap();
        for flips in 1..=strength + 1 {
            let bit = flips * 97 % (raw.len() * 8 - 8);
            wrong[bit / 8] ^= 1 << (bit % 8);
            let flips = u64::try_from(flips).unwrap();
            match flips > u64::try_from(strength).unwrap() {
                false => assert_eq!(corrected(&wrong, &layout), (data.clone(), flips, 0), "{text}"),
                true => assert_eq!(
                    corrected(&wrong, &layout),
                    (wrong[..*bytes].to_vec(), 0, 1),
                    "{text}"
                ),
            }
        }
    }
}

/// A page of zeros on a Broadcom BCM9583 with BCH8, as published in a bug report of the tool brcm-nand-bch.
#[test]
fn a_page_of_zeros_of_a_broadcom_chip_fits() {
    let spare = hex("ffffad71a91fc9c927a591f5eb49f8c1");
    let raw = [vec![0; 2048], spare.repeat(4)].concat();
    let text = "bch8/512,page=2048,oob=64,ecc=2..16+16,covers=0..2+16,right,mask=none,field=14,poly=0x5803";
    let layout = Layout::parse(text, None).unwrap();
    assert_eq!(corrected(&raw, &layout), (vec![0; 2048], 0, 0));
}

/// The constants that Linux's OMAP driver and tools for Samsung's controllers add, so that the parity of erased bytes is
/// erased: with them as mask an erased step is a code word, and so is the constant after zeros.
#[test]
fn constants_of_drivers_are_the_mask_of_erased_steps() {
    for (code, constant) in [
        ("bch4/512", "2813cc3996ac70"),
        ("bch8/512", "ef512e09ed939ac29779e524b5"),
        (
            "bch16/512",
            "9ad7ef918880fbf7063a5c9f4924d07502e359e0e4bc1e20702e",
        ),
    ] {
        let constant = hex(constant);
        let shape = Shape {
            page_bytes: 512,
            oob_bytes: u32::try_from(constant.len()).unwrap(),
        };
        let layout = Layout::parse(code, Some(shape)).unwrap();
        let raw = [vec![0; 512], constant].concat();
        assert_eq!(corrected(&raw, &layout), (vec![0; 512], 0, 0), "{code}");
    }
}
