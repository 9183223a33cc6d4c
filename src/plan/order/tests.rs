//! The order's promises, tried: a permutation for every N, L, K; the same for every B and W; resumable anywhere; well
//! mixed.

use super::batch::{Batching, Share, Tail};
use super::block::{EpochKeys, Pass};
use super::cursor::{Cursor, Place, Resumable};
use super::*;
use crate::error::Kind;
use crate::id::{OrderId, RecipeKey, SnapshotId};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

fn params(lanes: u32, block: u32) -> Params {
    Params { seed: 7, epoch: 0, lanes, block, shuffle: true }
}

fn sequence(epoch: &Epoch) -> Vec<Row> {
    (0..epoch.rows()).map(|p| epoch.at(p).unwrap()).collect()
}

fn all_rows(partitions: &[u64]) -> Vec<Row> {
    (0..).zip(partitions).flat_map(|(partition, n)| (0..*n).map(move |row| Row { partition, row })).collect()
}

fn check_permutation(partitions: &[u64], params: Params) {
    let epoch = Epoch::new(partitions, params).unwrap();
    let mut rows = sequence(&epoch);
    assert_eq!(epoch.at(epoch.rows()), None);
    assert_eq!(epoch.rows_at(0..epoch.rows()), rows);
    rows.sort();
    assert_eq!(rows, all_rows(partitions), "{params:?}");
}

fn arb_params() -> impl Strategy<Value = Params> {
    (any::<u64>(), 0..3_u64, 1..20_u32, 1..70_u32, prop::bool::weighted(0.9))
        .prop_map(|(seed, epoch, lanes, block, shuffle)| Params { seed, epoch, lanes, block, shuffle })
}

/// Unequal partitions, some of them empty.
fn arb_partitions() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1 => Just(0), 4 => 0..40_u64, 1 => 100..300_u64], 0..12)
}

/// Delivers an epoch from `position` on all ranks; the rows without padding, batch by batch and rank by rank.
fn deliver(epoch: &Epoch, mut position: u64, batch: u64, world: u32, tail: Tail, batches: usize) -> (Vec<Row>, u64) {
    let mut delivered = Vec::new();
    for _ in 0..batches {
        let shares: Vec<Option<Share>> =
            (0..world).map(|rank| epoch.share(position, &Batching::new(batch, rank, world, tail).unwrap())).collect();
        if shares[0].is_none() {
            assert!(shares.iter().all(Option::is_none));
            break;
        }
        let mut next = Vec::new();
        for share in shares.into_iter().flatten() {
            delivered.extend_from_slice(&share.rows[..share.rows.len() - share.padding]);
            next.push(share.next);
        }
        next.dedup();
        assert_eq!(next.len(), 1);
        position = next[0];
    }
    (delivered, position)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_epoch_is_a_permutation(partitions in arb_partitions(), params in arb_params()) {
        check_permutation(&partitions, params);
    }

    #[test]
    fn batches_and_ranks_do_not_change_the_order(
        partitions in arb_partitions(), params in arb_params(), batch in 1..90_u64, world in 1..9_u32,
    ) {
        let epoch = Epoch::new(&partitions, params).unwrap();
        let single = deliver(&epoch, 0, batch, 1, Tail::Short, usize::MAX).0;
        for tail in [Tail::Pad, Tail::Short] {
            prop_assert_eq!(&deliver(&epoch, 0, batch, world, tail, usize::MAX).0, &single);
        }
        let whole = (epoch.rows() / batch * batch) as usize;
        prop_assert_eq!(&deliver(&epoch, 0, batch, world, Tail::Drop, usize::MAX).0, &single[..whole]);
        // Each batch holds the positions that follow the last one's, whatever their listing.
        let order = sequence(&epoch);
        for (mut listed, mut positions) in
            single.chunks(batch as usize).map(<[Row]>::to_vec).zip(order.chunks(batch as usize).map(<[Row]>::to_vec))
        {
            listed.sort();
            positions.sort();
            prop_assert_eq!(listed, positions);
        }
    }

    #[test]
    fn a_cursor_resumes_under_another_world_and_batch_size(
        partitions in arb_partitions(), params in arb_params(),
        legs in prop::collection::vec((1..40_u64, 1..6_u32, 0..5_usize), 1..6),
    ) {
        let epoch = Epoch::new(&partitions, params).unwrap();
        let (mut rows, mut position) = (Vec::new(), 0);
        for (batch, world, batches) in legs {
            let (more, next) = deliver(&epoch, position, batch, world, Tail::Pad, batches);
            rows.extend(more);
            position = next;
        }
        rows.extend(deliver(&epoch, position, 13, 3, Tail::Pad, usize::MAX).0);
        rows.sort();
        prop_assert_eq!(rows, all_rows(&partitions));
    }

    #[test]
    fn steps_and_shares_are_equal_on_all_ranks(
        rows in 0..200_u64, position in 0..200_u64, batch in 1..50_u64, world in 1..9_u32,
    ) {
        let epoch = Epoch::new(&[rows], params(4, 8)).unwrap();
        for tail in [Tail::Pad, Tail::Drop, Tail::Short] {
            let mut at = position.min(rows);
            let batching = |rank| Batching::new(batch, rank, world, tail).unwrap();
            let steps = batching(0).batches(rows, at);
            for _ in 0..steps {
                let shares: Vec<Share> = (0..world).map(|rank| epoch.share(at, &batching(rank)).unwrap()).collect();
                let delivered: u64 = shares.iter().map(|s| s.rows.len() as u64).sum();
                prop_assert_eq!(delivered, if tail == Tail::Short { batch.min(rows - at) } else { batch });
                if tail != Tail::Short && batch.is_multiple_of(world.into()) {
                    prop_assert!(shares.iter().all(|s| s.rows.len() as u64 == batch / u64::from(world)));
                }
                at = shares[0].next;
            }
            prop_assert_eq!(epoch.share(at, &batching(0)), None);
        }
    }

    #[test]
    fn windows_hold_what_is_needed_and_let_go_of_what_is_delivered(
        partitions in arb_partitions(), params in arb_params(), start in 0..400_u64, length in 1..60_u64,
    ) {
        let epoch = Epoch::new(&partitions, params).unwrap();
        let order = sequence(&epoch);
        let start = start.min(epoch.rows());
        let end = (start + length).min(epoch.rows());
        let inside = |window: &[Rows], row: &Row| {
            window.iter().any(|w| w.partition == row.partition && w.rows.contains(&row.row))
        };
        let window = epoch.window(start..end);
        for row in &order[start as usize..end as usize] {
            prop_assert!(inside(&window, row));
        }
        // What a window lets go of never comes again.
        let now = epoch.window(start..start + 1);
        for row in order[..start as usize].iter().filter(|row| !inside(&now, row)) {
            prop_assert!(!order[start as usize..].contains(row));
        }
        prop_assert!(window.iter().all(|w| w.rows.start < w.rows.end && w.rows.end <= partitions[w.partition as usize]));
    }
}

#[test]
fn permutations_at_every_small_size() {
    for rows in 0..34 {
        for lanes in 1..7 {
            for block in 1..9 {
                check_permutation(&[rows], params(lanes, block));
            }
        }
    }
    for (rows, lanes, block) in [(5, 16, 64), (1000, 16, 64), (1000, 3, 1 << 20), (1000, u32::MAX, 3), (4099, 2, 1024)]
    {
        check_permutation(&[rows / 3, 0, rows - rows / 3], params(lanes, block));
    }
}

#[test]
fn without_shuffle_position_p_is_row_p() {
    let partitions = [3, 0, 2];
    let epoch = Epoch::new(&partitions, Params { shuffle: false, ..params(16, 64) }).unwrap();
    assert_eq!(sequence(&epoch), all_rows(&partitions));
    assert_eq!(deliver(&epoch, 0, 2, 2, Tail::Pad, 9).0, all_rows(&partitions));
    assert_eq!(epoch.open_rows_bound(), 1);
}

#[test]
fn pure_in_seed_and_epoch_and_different_in_each() {
    let partitions = [50; 20];
    let order = |seed, epoch| sequence(&Epoch::new(&partitions, Params { seed, epoch, ..params(4, 16) }).unwrap());
    assert_eq!(order(1, 2), order(1, 2));
    let orders: HashSet<Vec<Row>> = [(1, 2), (1, 3), (2, 2), (2, 1), (u64::MAX, 2)].map(|(s, e)| order(s, e)).into();
    assert_eq!(orders.len(), 5);
}

#[test]
fn impossible_settings_are_refused() {
    assert_eq!(Epoch::new(&[1], params(0, 4)).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(Epoch::new(&[1], params(4, 0)).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(Epoch::new(&[u64::MAX, 1], params(4, 4)).unwrap_err().kind(), Kind::Invalid);
    assert!(Batching::new(0, 0, 1, Tail::Pad).is_err());
    assert!(Batching::new(1, 2, 2, Tail::Pad).is_err());
    assert!(Batching::new(1, 0, 0, Tail::Pad).is_err());
}

#[test]
fn three_rows_over_eight_ranks() {
    let epoch = Epoch::new(&[3], params(16, 64)).unwrap();
    let shares: Vec<Share> =
        (0..8).map(|rank| epoch.share(0, &Batching::new(16, rank, 8, Tail::Pad).unwrap()).unwrap()).collect();
    assert!(shares.iter().all(|s| s.rows.len() == 2 && s.next == 3));
    assert_eq!(shares.iter().map(|s| s.padding).collect::<Vec<_>>(), [0, 1, 2, 2, 2, 2, 2, 2]);
    let batching = Batching::new(16, 0, 8, Tail::Pad).unwrap();
    assert_eq!(Epoch::new(&[], params(16, 64)).unwrap().share(0, &batching), None);
    assert_eq!(epoch.share(3, &batching), None);
}

/// Reads each lane forward only, drops rows as they are delivered, and counts what is held.
#[test]
fn open_rows_stay_within_the_bound() {
    for (rows, lanes, block) in [(5000, 16, 64), (5000, 3, 7), (5000, 1, 1024), (40, 16, 64)] {
        let epoch = Epoch::new(&[rows], params(lanes, block)).unwrap();
        let mut mixer = Mixer::new(&epoch);
        let mut read: HashMap<u64, u64> = HashMap::new();
        let (mut open, mut most) = (0, 0);
        for position in 0..rows {
            let lane = position % u64::from(lanes);
            let needed = mixer.line(position) - epoch.lane(lane as u32).0 + 1;
            let seen = read.entry(lane).or_default();
            open += needed.saturating_sub(*seen);
            *seen = needed.max(*seen);
            most = most.max(open);
            open -= 1;
        }
        assert!(most <= epoch.open_rows_bound(), "{most} rows open of {}", epoch.open_rows_bound());
        assert!(epoch.open_rows_bound() <= (u64::from(lanes) * (3 * u64::from(block) + 1) / 2).min(rows));
    }
}

#[test]
fn blocks_are_permuted_uniformly() {
    // Each of the 24 permutations of 4, and each place of each of 5 and 7 (cycle walking), about equally often.
    let source = EpochKeys::new(&params(1, 4));
    let keys = |n: u64| source.block(0, Pass::Aligned, n);
    let mut permutations: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
    for n in 0..24_000 {
        *permutations.entry((0..4).map(|i| keys(n).permute(i, 4)).collect()).or_default() += 1;
    }
    assert_eq!(permutations.len(), 24);
    assert!(permutations.values().all(|c| (800..1200).contains(c)), "{permutations:?}");
    for size in [2_u64, 3, 5, 7, 33, 64] {
        let mut counts = vec![0_u32; (size * size) as usize];
        for n in 0..1000 * size {
            let keys = keys(n);
            (0..size).for_each(|i| counts[(i * size + keys.permute(i, size)) as usize] += 1);
        }
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - 1000.0).powi(2) / 1000.0).sum();
        let free = ((size - 1) * (size - 1)) as f64;
        // Rows and columns both sum up: the cells deviate less than free ones by this factor.
        let chi = chi * (size - 1) as f64 / size as f64;
        assert!(chi < free + 6.0 * (2.0 * free).sqrt(), "size {size}: chi square {chi} with {free} degrees");
    }
}

/// Mean of distinct classes per batch of 256 over an epoch, as a share of what uniform sampling gives.
fn spread(epoch: &Epoch, classes: usize, class_of: impl Fn(Row) -> usize) -> f64 {
    let batching = Batching::new(256, 0, 1, Tail::Drop).unwrap();
    let (mut position, mut distinct, mut batches) = (0, 0, 0);
    while let Some(share) = epoch.share(position, &batching) {
        distinct += share.rows.iter().map(|row| class_of(*row)).collect::<HashSet<_>>().len();
        batches += 1;
        position = share.next;
    }
    let classes = classes as f64;
    let uniform = classes * (1.0 - (1.0 - 1.0 / classes).powi(256));
    distinct as f64 / f64::from(batches) / uniform
}

#[test]
fn classes_per_batch() {
    // 1,000 classes of 1,300 samples in partitions of 520.
    let (classes, partition) = (1000, 520);
    let partitions = vec![partition; 2500];
    let shuffled = |block| Epoch::new(&partitions, params(DEFAULT_LANES, block)).unwrap();
    // Hash-ordered: a partition is a random mixture of the dataset.
    let mixed = |row: Row| {
        let mut word = (u64::from(row.partition) * partition + row.row).wrapping_mul(0x2545_f491_4f6c_dd1d);
        word ^= word >> 29;
        (word.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as usize % classes
    };
    let hash_ordered = spread(&shuffled(default_block(true, 110_000, DEFAULT_LANES)), classes, mixed);
    assert!(hash_ordered >= 0.95, "{hash_ordered}");
    // Class-sorted, as tar members and tables are kept: 16 lanes see few classes at a time, and more as K grows.
    let sorted = |row: Row| ((u64::from(row.partition) * partition + row.row) / 1300) as usize;
    let small = spread(&shuffled(64), classes, sorted);
    let large = spread(&shuffled(1024), classes, sorted);
    assert!((0.05..0.25).contains(&small), "{small}");
    assert!((0.15..0.80).contains(&large) && large > small, "{large}");
    println!(
        "distinct classes per batch against uniform: hash-ordered {hash_ordered:.3}, class-sorted {small:.3} at K 64, {large:.3} at K 1024"
    );
}

#[test]
fn neighbours_spread() {
    // Rows that are neighbours in a shard are seldom neighbours in the order.
    let epoch = Epoch::new(&[1000; 100], params(16, 64)).unwrap();
    let order = sequence(&epoch);
    let close =
        order.windows(2).filter(|w| w[0].partition == w[1].partition && w[0].row.abs_diff(w[1].row) == 1).count();
    assert!(close < order.len() / 1000, "{close}");
    let moved: f64 = (0..epoch.rows()).zip(&order).filter(|(p, row)| row.row == p % 1000).count() as f64;
    assert!(moved < 300.0, "{moved} rows at their own place");
}

#[test]
fn default_blocks() {
    assert_eq!(default_block(true, 1, 16), 64);
    assert_eq!(default_block(false, 0, 16), 1024);
    assert_eq!(default_block(false, 110_000, 16), 64);
    assert_eq!(default_block(false, 10_923, 16), 512);
    assert_eq!(default_block(false, 10_922, 16), 1024);
    assert_eq!(default_block(false, u64::MAX, u32::MAX), 16);
}

fn cursor() -> Cursor {
    Cursor::new(
        &Params { seed: u64::MAX, epoch: u64::MAX, lanes: u32::MAX, block: u32::MAX, shuffle: true },
        RecipeKey::from_bytes([1; 32]),
        SnapshotId::from_bytes([2; 32]),
        OrderId::from_bytes([3; 32]),
        u64::MAX,
    )
}

#[test]
fn a_cursor_is_small_and_comes_back() {
    let json = cursor().to_json().unwrap();
    assert!(json.len() < 1024, "{} bytes", json.len());
    assert_eq!(Cursor::parse(&json).unwrap(), cursor());
    for length in 0..json.len() {
        assert_eq!(Cursor::parse(&json[..length]).unwrap_err().kind(), Kind::Invalid);
    }
}

#[test]
fn a_cursor_of_something_else_is_refused_by_name() {
    let open = Cursor { datasets: vec![Place { position: 0, epoch: 0, ..cursor().datasets[0].clone() }], ..cursor() };
    let rows = u64::MAX;
    assert_eq!(cursor().check(&open, rows).unwrap(), Resumable::Exactly);
    let changed = |change: fn(&mut Cursor)| {
        let mut saved = cursor();
        change(&mut saved);
        saved.check(&open, rows)
    };
    assert_eq!(
        changed(|c| c.datasets[0].snapshot = SnapshotId::from_bytes([9; 32])).unwrap(),
        Resumable::OtherContents
    );
    let refused = |change: fn(&mut Cursor), words: &[&str]| {
        let error = changed(change).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        words.iter().for_each(|word| assert!(error.message().contains(word), "{error} lacks {word}"));
    };
    refused(|c| c.version = 0, &["version", "expected 1", "found 0"]);
    refused(|c| c.datasets[0].recipe = RecipeKey::from_bytes([9; 32]), &["recipe", "0101", "0909"]);
    refused(|c| c.datasets[0].order = OrderId::from_bytes([9; 32]), &["order", "0303", "0909"]);
    refused(|c| c.seed = 5, &["seed", "expected 18446744073709551615", "found 5"]);
    refused(|c| c.shuffle = false, &["shuffle", "expected true", "found false"]);
    refused(|c| c.lanes = 4, &["lanes", "found 4"]);
    refused(|c| c.block = 4, &["block", "found 4"]);
    refused(|c| c.datasets[0].weight = 0.5, &["weight", "found 0.5"]);
    refused(|c| c.datasets.clear(), &["datasets", "found 0"]);
    let error = cursor().check(&open, 10).unwrap_err();
    assert!(error.message().contains("position: expected at most 10"), "{error}");
    let newer = cursor().to_json().unwrap().replace("\"version\":1", "\"version\":2,\"mixture\":true");
    assert!(Cursor::parse(&newer).unwrap_err().message().contains("version"));
    assert!(Cursor::parse("{\"epoch\": 3, \"num_samples\": 100}").is_err());
}

/// Run in release by hand: `cargo test --release --lib order:: -- --ignored --nocapture`.
#[test]
#[ignore = "measures; meaningful in release only"]
fn speed() {
    let partitions: Vec<u64> = (0..1_000_000_u64).map(|i| i % 7 * 100).collect();
    let start = std::time::Instant::now();
    let large = Epoch::new(&partitions, params(16, 64)).unwrap();
    println!("1,000,000 shards: {:?}", start.elapsed());
    let epoch = Epoch::new(&partitions[..100_000], params(16, 64)).unwrap();
    for (epoch, shards) in [(&epoch, 100_000), (&large, 1_000_000)] {
        let start = std::time::Instant::now();
        let sum: u64 = (0..100_000).map(|p| epoch.at(p).unwrap().row).sum();
        println!("at, 100,000 positions of {shards} shards: {:?} ({sum})", start.elapsed());
        let start = std::time::Instant::now();
        let mut position = 0;
        while let Some(share) = epoch.share(position, &Batching::new(256, 0, 1, Tail::Short).unwrap()) {
            position = share.next;
            if position > 100_000 {
                break;
            }
        }
        println!("batches of 256, 100,000 positions of {shards} shards: {:?}", start.elapsed());
    }
}
