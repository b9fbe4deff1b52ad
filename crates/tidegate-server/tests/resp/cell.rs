//! `CL.THROTTLE` in every form, against an independent model of redis-cell.

use super::{Peer, array};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use std::cell::RefCell;
use tidegate::Span;
use tidegate_testbed::RedisCell;

/// Number of sequences, each of up to [`COMMANDS_MAX`] commands.
const SEQUENCES: u32 = 100_000;
const COMMANDS_MAX: usize = 12;
/// Number of keys before the test starts a new server.
const KEYS: u64 = 500;

type Words = Vec<Vec<u8>>;

/// The pause before a command in microseconds, and the words after the key.
type Step = (u64, Words);

/// Returns a number in one of the forms that redis-cell accepts.
fn form(number: i64, form: u8) -> Vec<u8> {
    let text = match form {
        0 if number >= 0 => format!("+{number}"),
        1 if number >= 0 => format!("000{number}"),
        2 if number == 0 => "-0".to_owned(),
        _ => number.to_string(),
    };
    text.into_bytes()
}

/// Generates words in place of a number.
fn any_word() -> impl Strategy<Value = Vec<u8>> {
    let odd = prop::sample::select(vec![
        &b"9223372036854775808"[..],
        b"-9223372036854775809",
        b"99999999999999999999999999999999999999999",
        b"",
        b"+",
        b"-",
        b"--1",
        b"+-1",
        b"1.0",
        b"1e3",
        b"0x1",
        b" 1",
        b"1 ",
        b"\xef\xbc\x91",
        b"1_000",
        b"k",
        b"\xff",
        b"1\r\n2",
        b"1\0",
        b"INF",
        b"NX",
    ]);
    prop_oneof![
        4 => (-3..40_i64).prop_map(|number| number.to_string().into_bytes()),
        2 => odd.prop_map(<[u8]>::to_vec),
        1 => prop::sample::select(vec![i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1, 1 << 53, 9_223_372_037])
            .prop_map(|number| number.to_string().into_bytes()),
    ]
}

/// Generates a burst, a count and a period.
fn rate() -> impl Strategy<Value = [i64; 3]> {
    let large =
        || prop::sample::select(vec![i64::MAX, i64::MIN, 1 << 40, 31_536_000, 9_223_372_037]);
    let burst = prop_oneof![8 => 0..20_i64, 2 => 0..100_000_i64, 1 => -5..0_i64, 1 => large()];
    let count =
        prop_oneof![8 => 1..100_i64, 2 => 1..10_000_000_i64, 1 => -50..50_i64, 1 => large()];
    let period =
        prop_oneof![8 => 1..100_i64, 1 => 1..3_000_000_i64, 1 => -50..50_i64, 1 => large()];
    (burst, count, period).prop_map(<[i64; 3]>::from)
}

/// Generates commands with one of two rates, with numbers in all forms, and some commands with arbitrary words.
fn sequence() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![6 => Just(0_u64), 4 => 0..2_000_000_u64, 1 => 0..100_000_000_u64];
    let quantity = prop_oneof![
        4 => Just(None), 8 => (-3..6_i64).prop_map(Some), 1 => (0..200_i64).prop_map(Some),
        1 => any::<i64>().prop_map(Some),
    ];
    let forms = prop::array::uniform4(0..12_u8);
    let others = prop_oneof![
        9 => Just(None),
        1 => prop::collection::vec(any_word(), 0..7).prop_map(Some),
    ];
    let step = (pause, any::<bool>(), quantity, forms, others);
    (prop::array::uniform2(rate()), prop::collection::vec(step, 1..=COMMANDS_MAX)).prop_map(
        |(rates, steps)| {
            let step = |(pause, is_second, quantity, forms, others): (
                u64,
                bool,
                Option<i64>,
                [u8; 4],
                Option<Words>,
            )| {
                let numbers = rates[usize::from(is_second)].into_iter().chain(quantity);
                let words = numbers.zip(forms).map(|(number, how)| form(number, how)).collect();
                (pause, others.unwrap_or(words))
            };
            steps.into_iter().map(step).collect()
        },
    )
}

/// A RESP session and the model of redis-cell, at the same time.
struct SessionAndModel {
    peer: Peer,
    cell: RedisCell,
    now_ns: i128,
    keys: u64,
}

impl SessionAndModel {
    fn new() -> Self {
        Self { peer: Peer::new(), cell: RedisCell::default(), now_ns: 0, keys: 0 }
    }

    /// Returns a new key, with bytes that are not UTF-8.
    fn key(&mut self) -> Vec<u8> {
        self.keys += 1;
        if self.keys > KEYS {
            *self = Self::new();
        }
        let mut key = self.keys.to_le_bytes().to_vec();
        key.extend(b" \r\n\xff");
        key
    }

    fn wait(&mut self, pause_us: u64) {
        self.peer.clock.advance(Span::from_micros(pause_us));
        self.now_ns += i128::from(pause_us) * 1_000;
    }
}

/// Returns the arguments of `CL.THROTTLE`; without words there is no key either.
fn all_words<'a>(key: &'a [u8], words: &'a Words) -> Vec<&'a [u8]> {
    let key = (!words.is_empty()).then_some(key);
    key.into_iter().chain(words.iter().map(Vec::as_slice)).collect()
}

// P6. The commands between two pauses are one pipeline, which the session decides as one batch.
#[test]
fn every_form_of_words_is_answered_as_redis_cell_answers_it() {
    let both = RefCell::new(SessionAndModel::new());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(SEQUENCES));
    let result = runner.run(&sequence(), |steps| {
        let both = &mut *both.borrow_mut();
        let key = both.key();
        for together in steps.chunk_by(|_, (pause_us, _)| *pause_us == 0) {
            both.wait(together[0].0);
            let (mut input, mut expected) = (Vec::new(), Vec::new());
            for (_, words) in together {
                let words = all_words(&key, words);
                input.extend(array(&[&[&b"CL.THROTTLE"[..]], &words[..]].concat()));
                expected.extend(both.cell.reply(both.now_ns, &words));
            }
            let (done, reply) = both.peer.bytes(&input);
            prop_assert_eq!(done, input.len(), "the session takes the whole pipeline");
            let [reply, expected] =
                [reply, expected].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            prop_assert_eq!(reply, expected);
        }
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("{why}\n{}", readable(&steps)),
        Err(error) => panic!("{error}"),
    }
}

/// Formats the commands for a failure message.
fn readable(steps: &[Step]) -> String {
    let line = |(pause_us, words): &Step| {
        let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        format!("after {pause_us} us: CL.THROTTLE k {}\n", words.join(" "))
    };
    steps.iter().map(line).collect()
}
