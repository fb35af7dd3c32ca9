//! How fast chunks are decoded on one core, by what is asked of them. Run with `--release`.

use consumer::testing::{ChunkBuilder, TableBuilder, insn, load, part, store, stream};
use consumer::{Chunk, Item, Sums, Tally};
use std::hint::black_box;

fn main() {
    let chunk_words = 1 << 15;
    for (what, n_insns, n_accesses, blocks) in [
        ("100 nops", 101, 0, 1),
        ("8 insns, 3 accesses", 8, 3, 500),
        ("4 insns, 1 access", 4, 1, 5000),
        ("3 insns, none", 3, 0, 200),
    ] {
        let mut table = TableBuilder::new("x86_64", 8, false);
        let ids: Vec<u32> = (0..blocks)
            .map(|b| {
                let insns: Vec<_> = (0..n_insns)
                    .map(|i| {
                        let access = [if i % 2 == 0 { load(8) } else { store(4) }];
                        insn(&[0x90, 0x90, 0x90], if i < n_accesses { &access } else { &[] })
                    })
                    .collect();
                table.block(0x40_0000 + b as u64 * 64, &insns)
            })
            .collect();
        let table = table.finish();
        let mut chunk = ChunkBuilder::new();
        let mut used = 0;
        let mut i = 0usize;
        while used + 1 + n_accesses <= chunk_words {
            // A fixed, irregular walk over the blocks, in runs as loops make them.
            let id = ids[(i / 7).wrapping_mul(2654435761) % ids.len()];
            chunk = chunk.block(id, &vec![0x7fff_0000 + i as u64; n_accesses]);
            used += 1 + n_accesses;
            i += 1;
        }
        let part = part(&stream(0), &table, 0, &chunk.words());
        let chunk = Chunk::new(&part);
        let rate = |name: &str, per_pass: f64, unit: &str, pass: &mut dyn FnMut() -> u64| {
            let mut best = f64::MAX;
            let mut worst: f64 = 0.0;
            black_box(pass());
            for _ in 0..5 {
                let start = cpu_time();
                let passes = 200;
                for _ in 0..passes {
                    black_box(pass());
                }
                let each = (cpu_time() - start) / passes as f64;
                best = best.min(each);
                worst = worst.max(each);
            }
            println!(
                "{what:22} {name:22} {:8.1}..{:.1} million {unit} a second",
                per_pass / worst / 1e6,
                per_pass / best / 1e6
            );
        };
        let (blocks, insns, accesses) = (i as f64, (i * n_insns) as f64, (i * n_accesses) as f64);
        let mut counts = vec![0u32; table.seen().max(ids.len()) + 1];
        rate("counts of blocks", insns, "insns", &mut || {
            for b in chunk.blocks() {
                counts[whole(b).number() as usize] += 1;
            }
            u64::from(counts[0])
        });
        rate("blocks", blocks, "blocks", &mut || {
            let mut sum = 0;
            for b in chunk.blocks() {
                sum += u64::from(whole(b).number());
            }
            sum
        });
        let mut tally = Tally::<()>::default();
        rate("tally of blocks", insns, "insns", &mut || {
            tally.start(&table);
            let mut items = chunk.items();
            loop {
                tally.add_plain(&mut items, |()| {});
                match items.next() {
                    None => break,
                    Some(Ok(Item::Block(block))) => tally.add(&block, |_| ()),
                    Some(other) => drop(whole(other)),
                }
            }
            let mut all = Sums::default();
            tally.finish(&table, |_, sums| all += sums);
            all.insns
        });
        rate("instructions", insns, "insns", &mut || {
            let mut sum = 0u64;
            for b in chunk.blocks() {
                for i in whole(b).insns() {
                    sum = sum.wrapping_add(i.pc());
                }
            }
            sum
        });
        if n_accesses > 0 {
            rate("accesses", accesses, "accesses", &mut || {
                let mut sum = 0u64;
                for b in chunk.blocks() {
                    for a in whole(b).accesses() {
                        sum = sum.wrapping_add(a.addr);
                    }
                }
                sum
            });
            rate("accesses of plain", accesses, "accesses", &mut || {
                let mut sum = 0u64;
                let mut items = chunk.items();
                loop {
                    while let Some(block) = items.next_plain() {
                        for a in block.plain_accesses() {
                            sum = sum.wrapping_add(a.addr);
                        }
                    }
                    match items.next() {
                        Some(Ok(Item::Block(block))) => {
                            sum = block.accesses().fold(sum, |s, a| s.wrapping_add(a.addr));
                        }
                        Some(other) => drop(whole(other)),
                        None => return sum,
                    }
                }
            });
            rate("accesses by insn", accesses, "accesses", &mut || {
                let mut sum = 0u64;
                for b in chunk.blocks() {
                    for i in whole(b).insns() {
                        for a in i.accesses() {
                            sum = sum.wrapping_add(a.addr);
                        }
                    }
                }
                sum
            });
        }
    }
}

fn whole<T>(result: Result<T, consumer::Error>) -> T {
    result.unwrap_or_else(|e| panic!("{e}"))
}

/// CPU time of this thread, in seconds: what else the machine does counts less.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
