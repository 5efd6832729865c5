//! Raw pages as controllers write them, one function each, from their public descriptions.

use crate::encoder::{Bch, Mask, Page, places};

/// Makes a raw page of main data.
type Write = Box<dyn Fn(&[u8]) -> Page>;

/// A way to write pages.
pub struct Controller {
    /// The family that must be found.
    pub family: &'static str,
    pub page: usize,
    pub oob: usize,
    pub strength: usize,

    pub write: Write,
}

fn controller(
    family: &'static str,
    (page, oob): (usize, usize),
    strength: usize,
    write: impl Fn(&[u8]) -> Page + 'static,
) -> Controller {
    Controller {
        family,
        page,
        oob,
        strength,
        write: Box::new(write),
    }
}

fn m_of(step: usize) -> (u32, u32) {
    if step == 512 { (13, 0x201b) } else { (14, 0x402b) }
}

fn bch(step: usize, t: usize) -> Bch {
    let (m, polynomial) = m_of(step);
    Bch::new(m, polynomial, u32::try_from(t).expect("it is small"))
}

fn parity_bytes(step: usize, t: usize) -> usize {
    let (m, _) = m_of(step);
    (t * usize::try_from(m).expect("it is small")).div_ceil(8)
}

/// Main data in front, and the parity of step n at `at(n)`.
fn apart(
    main: &[u8],
    oob: usize,
    (step, code, mask): (usize, &Bch, Mask),
    lowest_first: bool,
    at: impl Fn(usize) -> std::ops::Range<usize>,
) -> Page {
    let mut page = Page::erased(main.len() + oob);
    page.raw[..main.len()].copy_from_slice(main);
    for number in 0..main.len() / step {
        let message = places(number * step..(number + 1) * step, lowest_first);
        let parity = at(number);
        let parity = places(main.len() + parity.start..main.len() + parity.end, lowest_first);
        page.encode(code, mask, message, &parity);
    }
    page
}

fn linux(sizes: (usize, usize), step: usize, t: usize) -> Controller {
    let (code, bytes) = (bch(step, t), parity_bytes(step, t));
    let (page, oob) = sizes;
    let first = oob - bytes * (page / step);
    controller("linux", sizes, t, move |main| {
        apart(main, oob, (step, &code, Mask::Erased), false, |n| {
            first + n * bytes..first + (n + 1) * bytes
        })
    })
}

fn linux_hamming(sizes: (usize, usize), step: usize) -> Controller {
    controller("linux", sizes, 1, move |main| {
        let mut page = Page::erased(sizes.0 + sizes.1);
        page.raw[..sizes.0].copy_from_slice(main);
        let steps = sizes.0 / step;
        for number in 0..steps {
            let first = sizes.0 + sizes.1 - 3 * (steps - number);
            let parity = match (sizes.0, number) {
                (512, 0) => [512, 513, 514],
                (512, _) => [515, 518, 519],
                _ => [first, first + 1, first + 2],
            };
            page.encode_hamming(number * step..(number + 1) * step, parity);
        }
        page
    })
}

fn interleaved(sizes: (usize, usize), step: usize, t: usize) -> Controller {
    let (code, bytes) = (bch(step, t), parity_bytes(step, t));
    controller("linux-interleaved", sizes, t, move |main| {
        let mut page = Page::erased(sizes.0 + sizes.1);
        for (number, data) in main.chunks(step).enumerate() {
            let at = number * (step + bytes);
            page.raw[at..at + step].copy_from_slice(data);
            let parity = places(at + step..at + step + bytes, false);
            page.encode(&code, Mask::Erased, places(at..at + step, false), &parity);
        }
        page
    })
}

fn omap(t: usize, stride: usize, mask: Mask) -> Controller {
    let (code, bytes) = (bch(512, t), parity_bytes(512, t));
    let oob = if t == 16 { 224 } else { 64 };
    let page = if t == 16 { 4096 } else { 2048 };
    controller("omap", (page, oob), t, move |main| {
        let mut page = apart(main, oob, (512, &code, mask), false, |n| {
            2 + n * stride..2 + n * stride + bytes
        });
        // The byte that the ROM code reserves.
        for number in 0..main.len() / 512 {
            for byte in bytes..stride {
                page.raw[main.len() + 2 + number * stride + byte] = 0;
            }
        }
        page
    })
}

fn qnx() -> Controller {
    let code = bch(512, 4);
    controller("omap-qnx", (2048, 64), 4, move |main| {
        let mut page = Page::erased(2112);
        page.raw[..2048].copy_from_slice(main);
        page.raw[2050..2064].copy_from_slice(b"QNX etfs trans");
        for number in 0..4 {
            let mut message = places(number * 512..(number + 1) * 512, false);
            message.extend(places(2048 + number * 4..2052 + number * 4, false));
            let at = 2064 + number * 7;
            page.encode(&code, Mask::None, message, &places(at..at + 7, false)[4..]);
        }
        page
    })
}

/// i.MX: bits packed, lowest first; the bad-block mark changes places with the first byte of the metadata.
fn gpmi(sizes: (usize, usize), step: usize, t: usize) -> Controller {
    let code = bch(step, t);
    let parity_bits = t * usize::try_from(m_of(step).0).expect("it is small");
    controller("gpmi", sizes, t, move |main| {
        let mut page = Page::erased(sizes.0 + sizes.1);
        let all = places(0..sizes.0 + sizes.1, true);
        let mut cursor = 80;
        // The places of the main data.
        let mut data_places = Vec::new();
        let mut words = Vec::new();
        for number in 0..sizes.0 / step {
            let data = &all[cursor..cursor + step * 8];
            data_places.extend_from_slice(data);
            let message = if number == 0 {
                &all[..cursor + step * 8]
            } else {
                data
            };
            cursor += step * 8;
            words.push((message.to_vec(), all[cursor..cursor + parity_bits].to_vec()));
            cursor += parity_bits;
        }
        for (number, place) in data_places.iter().enumerate() {
            let bit = main[number / 8] >> (number % 8) & 1 == 1;
            crate::encoder::put(&mut page.raw, *place, bit);
        }
        let mark = page.raw[sizes.0];
        page.raw[0] = mark;
        page.raw[sizes.0] = 0xFF;
        for (message, parity) in words {
            page.encode(&code, Mask::None, message, &parity);
        }
        page
    })
}

fn qcom(sizes: (usize, usize), t: usize) -> Controller {
    let code = Bch::new(13, 0x201b, u32::try_from(t).expect("it is small"));
    let (parity, pad) = if t == 8 { (13, 2) } else { (7, 4) };
    controller("qcom", sizes, t, move |main| {
        let mut page = Page::erased(sizes.0 + sizes.1);
        let word = 516 + 1 + parity + pad;
        let words = sizes.0.div_ceil(516);
        let mark = sizes.0 - word * (words - 1);
        for (number, data) in main.chunks(516).enumerate() {
            let at = number * word;
            let mut data = data.to_vec();
            data.resize(516, 0xFF);
            page.raw[at..at + mark].copy_from_slice(&data[..mark]);
            page.raw[at + mark + 1..at + 517].copy_from_slice(&data[mark..]);
            let mut message = places(at..at + mark, false);
            message.extend(places(at + mark + 1..at + 517, false));
            page.encode(
                &code,
                Mask::None,
                message,
                &places(at + 517..at + 517 + parity, false),
            );
        }
        page
    })
}

fn brcm(m: u32, polynomial: u32, t: usize) -> Controller {
    let code = Bch::new(m, polynomial, u32::try_from(t).expect("it is small"));
    let parity_bits = t * usize::try_from(m).expect("it is small");
    controller("brcm", (2048, 64), t, move |main| {
        let mut page = Page::erased(2112);
        page.raw[..2048].copy_from_slice(main);
        page.raw[2049] = 0x19;
        for number in 0..4 {
            let spare = places(2048 + number * 16..2064 + number * 16, false);
            let (covered, parity) = spare.split_at(128 - parity_bits);
            let message = places(number * 512..(number + 1) * 512, false);
            page.encode(&code, Mask::None, [&message[..], covered].concat(), parity);
        }
        page
    })
}

fn pmecc(sizes: (usize, usize), step: usize, t: usize) -> Controller {
    let (m, polynomial) = if step == 512 { (13, 0x201b) } else { (14, 0x4443) };
    let code = Bch::new(m, polynomial, u32::try_from(t).expect("it is small"));
    let bytes = parity_bytes(step, t);
    let first = sizes.1 - bytes * (sizes.0 / step);
    controller("pmecc", sizes, t, move |main| {
        apart(main, sizes.1, (step, &code, Mask::Erased), true, |n| {
            first + n * bytes..first + (n + 1) * bytes
        })
    })
}

/// Data, covered spare bytes and parity of each step in a row.
fn stream(
    family: &'static str,
    sizes: (usize, usize),
    (step, spare, word): (usize, usize, usize),
    (m, polynomial, t): (u32, u32, usize),
    (mask, lowest_first): (Mask, bool),
) -> Controller {
    let code = Bch::new(m, polynomial, u32::try_from(t).expect("it is small"));
    let bytes = (t * usize::try_from(m).expect("it is small")).div_ceil(8);
    controller(family, sizes, t, move |main| {
        let mut page = Page::erased(sizes.0 + sizes.1);
        for (number, data) in main.chunks(step).enumerate() {
            let at = number * word;
            page.raw[at..at + step].copy_from_slice(data);
            let end = at + step + spare;
            let parity = places(end..end + bytes, lowest_first);
            page.encode(&code, mask, places(at..end, lowest_first), &parity);
        }
        page
    })
}

fn sunxi() -> Controller {
    let code = Bch::new(14, 0x5803, 16);
    controller("sunxi", (4096, 224), 16, move |main| {
        let mut page = Page::erased(4320);
        page.raw[..4096].copy_from_slice(main);
        for number in 0..4 {
            let at = 4096 + number * 32;
            let mut message = places(number * 1024..(number + 1) * 1024, true);
            message.extend(places(at..at + 4, true));
            page.encode(&code, Mask::None, message, &places(at + 4..at + 32, true));
        }
        page
    })
}

/// 1024-byte steps and 14 bytes each, with the two bytes of the mark at the end of the main area passed over.
fn denali() -> Controller {
    let code = bch(1024, 8);
    controller("denali", (2048, 64), 8, move |main| {
        let mut page = Page::erased(2112);
        let free: Vec<usize> = (0..2112).filter(|byte| !(2048..2050).contains(byte)).collect();
        for (number, data) in main.chunks(1024).enumerate() {
            let word = &free[number * 1038..(number + 1) * 1038];
            for (place, byte) in word.iter().zip(data) {
                page.raw[*place] = *byte;
            }
            let bits = |bytes: &[usize]| {
                bytes
                    .iter()
                    .flat_map(|byte| places(*byte..byte + 1, false))
                    .collect::<Vec<_>>()
            };
            page.encode(&code, Mask::None, bits(&word[..1024]), &bits(&word[1024..]));
        }
        page
    })
}

pub fn all() -> Vec<Controller> {
    vec![
        linux((2048, 64), 512, 4),
        linux((2048, 64), 512, 8),
        linux((4096, 224), 512, 16),
        linux((4096, 224), 1024, 24),
        linux((8192, 640), 1024, 40),
        linux_hamming((512, 16), 256),
        linux_hamming((2048, 64), 256),
        linux_hamming((2048, 64), 512),
        interleaved((2048, 64), 512, 8),
        omap(4, 8, Mask::None),
        omap(8, 14, Mask::None),
        omap(8, 14, Mask::Erased),
        omap(16, 26, Mask::None),
        qnx(),
        gpmi((2048, 64), 512, 8),
        gpmi((4096, 128), 512, 8),
        gpmi((4096, 224), 512, 16),
        gpmi((2048, 64), 512, 6),
        qcom((2048, 64), 4),
        qcom((2048, 128), 8),
        qcom((4096, 224), 8),
        brcm(13, 0x201b, 4),
        brcm(14, 0x5803, 8),
        pmecc((2048, 64), 512, 4),
        pmecc((4096, 224), 1024, 24),
        controller("ifc", (2048, 64), 4, {
            let code = bch(512, 4);
            move |main| {
                apart(main, 64, (512, &code, Mask::None), false, |n| {
                    8 + n * 8..15 + n * 8
                })
            }
        }),
        stream(
            "mediatek",
            (4096, 256),
            (1024, 8, 1088),
            (14, 0x4443, 32),
            (Mask::None, true),
        ),
        stream(
            "mediatek",
            (4096, 256),
            (512, 8, 540),
            (13, 0x201b, 12),
            (Mask::None, true),
        ),
        sunxi(),
        stream(
            "amlogic",
            (4096, 256),
            (512, 2, 528),
            (14, 0x402b, 8),
            (Mask::Erased, false),
        ),
        stream(
            "rockchip",
            (2048, 64),
            (1024, 4, 1056),
            (14, 0x402b, 16),
            (Mask::None, false),
        ),
        denali(),
        stream(
            "marvell",
            (4096, 128),
            (2048, 32, 2110),
            (15, 0x8003, 16),
            (Mask::None, true),
        ),
    ]
}
