//! The readings of the system's files, and the errors of files that are missing or garbled (A14).

use crate::tree::Tree;
use proptest::prelude::*;
use tidegate::load::{Shedder, Signal, Unread};
use tidegate::{ManualClock, Span};

const ALL: [Signal; 5] =
    [Signal::Cpu, Signal::Memory, Signal::CpuPressure, Signal::MemoryPressure, Signal::IoPressure];

fn watching(tree: &Tree) -> (Shedder<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let builder = ALL
        .iter()
        .fold(Shedder::builder(), |builder, signal| builder.watch(*signal, signal.marks()));
    (builder.root(tree.path()).build_with_clock(clock.clone()), clock)
}

fn value(shedder: &Shedder<ManualClock>, signal: Signal) -> Result<u32, Unread> {
    let reading = shedder.readings().into_iter().find(|reading| reading.signal == signal);
    reading.unwrap().value
}

/// Returns the level of the signal a second after the tree has been changed.
fn after(tree: &Tree, signal: Signal, change: impl FnOnce(&Tree)) -> Result<u32, Unread> {
    let (shedder, clock) = watching(tree);
    shedder.sample();
    change(tree);
    clock.advance(Span::from_secs(1));
    shedder.sample();
    value(&shedder, signal)
}

#[test]
fn a_machines_processors_are_what_its_ticks_say() {
    let tree = Tree::machine();
    // 100 ticks more: 30 + 10 + 20 used with irq, softirq and steal, 25 idle, 15 waiting for disks.
    let change = |tree: &Tree| tree.write("proc/stat", "cpu  10 5 15 125 15 10 10 10 99 99\n");
    assert_eq!(after(&tree, Signal::Cpu, change), Ok(600));
}

#[test]
fn a_container_is_measured_by_its_quota() {
    let tree = Tree::container();
    let used = |us: u64| {
        move |tree: &Tree| {
            tree.write("sys/fs/cgroup/app/cpu.stat", &format!("usage_usec {us}\n"));
        }
    };
    assert_eq!(after(&tree, Signal::Cpu, used(400_000)), Ok(800), "of half a processor");
    tree.write("sys/fs/cgroup/app/cpu.stat", "usage_usec 0\n");
    tree.write("sys/fs/cgroup/app/cpu.max", "max 100000\n");
    assert_eq!(after(&tree, Signal::Cpu, used(400_000)), Ok(200), "of the machine's two");
}

#[test]
fn memory_is_what_cannot_just_be_dropped() {
    let tree = Tree::machine();
    assert_eq!(after(&tree, Signal::Memory, |_| ()), Ok(100));
    let tree = Tree::container();
    assert_eq!(after(&tree, Signal::Memory, |_| ()), Ok(300), "500 less 200, of 1000");
    let unbounded = |tree: &Tree| tree.write("sys/fs/cgroup/app/memory.max", "max\n");
    assert_eq!(after(&tree, Signal::Memory, unbounded), Ok(100), "the machine's");
}

/// A pod has bounds of its own, which all its containers share.
#[test]
fn a_bound_counts_on_whichever_cgroup_it_is_set() {
    let tree = Tree::container();
    tree.write("proc/self/cgroup", "0::/pod/inner/app\n");
    let write = |name: &str, text: &str| tree.write(&format!("sys/fs/cgroup/pod/{name}"), text);
    write("inner/app/cgroup.controllers", "cpu memory\n");
    write("inner/app/cpu.max", "max 100000\n");
    write("inner/app/memory.max", "1000\n");
    write("inner/app/memory.current", "100\n");
    write("inner/memory.max", "max\n");
    write("cpu.max", "50000 100000\n");
    write("memory.max", "2000\n");
    write("memory.current", "1800\n");
    write("inner/app/cpu.stat", "usage_usec 0\n");
    write("cpu.stat", "usage_usec 0\n");
    assert_eq!(after(&tree, Signal::Memory, |_| ()), Ok(900), "others have taken it");
    let busy = |tree: &Tree| tree.write("sys/fs/cgroup/pod/cpu.stat", "usage_usec 400000\n");
    assert_eq!(after(&tree, Signal::Cpu, busy), Ok(800), "of the half that the pod has");
    write("inner/app/cpu.max", "10000 100000\n");
    write("cpu.stat", "usage_usec 0\n");
    let tighter = |tree: &Tree| {
        tree.write("sys/fs/cgroup/pod/inner/app/cpu.stat", "usage_usec 90000\n");
        tree.write("sys/fs/cgroup/pod/cpu.stat", "usage_usec 90000\n");
    };
    assert_eq!(after(&tree, Signal::Cpu, tighter), Ok(900), "of the tenth that it has itself");
}

#[test]
fn pressure_is_the_containers_where_it_has_its_own() {
    let tree = Tree::container();
    tree.pressure("sys/fs/cgroup/app/cpu.pressure", "12.39");
    tree.pressure("proc/pressure/cpu", "99.00");
    tree.pressure("proc/pressure/io", "7.05");
    assert_eq!(after(&tree, Signal::CpuPressure, |_| ()), Ok(123));
    assert_eq!(after(&tree, Signal::IoPressure, |_| ()), Ok(70), "it has none for disks");
}

#[test]
fn a_cgroup_that_is_not_where_the_host_says_is_at_the_root_of_the_mount() {
    for path in ["0::/kubepods/pod7/abc\n", "0::/../../abc\n", "0::/\n"] {
        let tree = Tree::machine();
        tree.write("proc/self/cgroup", path);
        tree.write("sys/fs/cgroup/cgroup.controllers", "memory\n");
        tree.write("sys/fs/cgroup/memory.max", "1000\n");
        tree.write("sys/fs/cgroup/memory.current", "700\n");
        assert_eq!(after(&tree, Signal::Memory, |_| ()), Ok(700), "{path}");
    }
}

#[test]
fn what_is_missing_is_said_and_sheds_nothing() {
    let tree = Tree::new();
    let (shedder, clock) = watching(&tree);
    for _ in 0..100 {
        shedder.sample();
        clock.advance(Span::from_secs(1));
    }
    assert_eq!(shedder.level().as_millionths(), 0);
    for (reading, file) in shedder.readings().into_iter().zip([
        "proc/stat",
        "proc/meminfo",
        "proc/pressure/cpu",
        "proc/pressure/memory",
        "proc/pressure/io",
    ]) {
        let path = tree.path().join(file);
        let said = reading.to_string();
        let expected = format!("{} cannot be read: {}", reading.signal, path.display());
        assert!(said.starts_with(&expected), "{said}");
        assert!(matches!(reading.value, Err(Unread::Missing { .. })));
    }
}

#[test]
fn a_file_that_goes_away_is_noticed_and_one_that_comes_back_too() {
    let tree = Tree::machine();
    let (shedder, _) = watching(&tree);
    shedder.sample();
    assert_eq!(value(&shedder, Signal::CpuPressure), Ok(0));
    tree.remove("proc/pressure/cpu");
    shedder.sample();
    assert!(matches!(value(&shedder, Signal::CpuPressure), Err(Unread::Missing { .. })));
    tree.pressure("proc/pressure/cpu", "3.00");
    shedder.sample();
    assert_eq!(value(&shedder, Signal::CpuPressure), Ok(30));
}

#[test]
fn garbage_is_called_garbage() {
    for (file, signal) in [
        ("sys/fs/cgroup/app/cpu.stat", Signal::Cpu),
        ("sys/fs/cgroup/app/cpu.max", Signal::Cpu),
        ("sys/fs/cgroup/app/memory.max", Signal::Memory),
        ("sys/fs/cgroup/app/memory.current", Signal::Memory),
        ("sys/fs/cgroup/app/cpu.pressure", Signal::CpuPressure),
        ("proc/pressure/io", Signal::IoPressure),
    ] {
        for garbage in
            ["", "\n\n", "lorem ipsum dolor", "some avg10=x", "-1", "99999999999999999999"]
        {
            let tree = Tree::container();
            tree.write(file, garbage);
            let answer = after(&tree, signal, |_| ());
            assert!(
                matches!(answer, Err(Unread::Garbled { .. })),
                "{file} {garbage:?}: {answer:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn no_bytes_in_any_file_make_it_panic_or_say_more_than_all(
        bytes in prop_oneof![
            "[a-z0-9_ :=.\n-]{0,80}",
            "(cpu|some|max|usage_usec|MemTotal:|MemAvailable:) ?[0-9 =.avg]{0,60}\n?",
        ],
    ) {
        let tree = Tree::container();
        for file in [
            "proc/stat",
            "proc/meminfo",
            "proc/pressure/io",
            "sys/fs/cgroup/app/cpu.stat",
            "sys/fs/cgroup/app/cpu.max",
            "sys/fs/cgroup/app/memory.max",
            "sys/fs/cgroup/app/memory.current",
            "sys/fs/cgroup/app/memory.pressure",
        ] {
            tree.write(file, &bytes);
        }
        let (shedder, clock) = watching(&tree);
        for _ in 0..3 {
            shedder.sample();
            clock.advance(Span::from_secs(1));
            for reading in shedder.readings() {
                prop_assert!(reading.value.is_err() || reading.value.unwrap() <= 1_000);
            }
        }
    }
}

#[test]
fn on_this_machine_every_signal_has_a_value_or_a_reason() {
    let shedder = Shedder::new();
    shedder.sample();
    for reading in shedder.readings() {
        println!("{reading}");
        assert!(!reading.to_string().is_empty());
        if cfg!(target_os = "linux") && reading.signal == Signal::Memory {
            assert!(reading.value.is_ok(), "Linux always reports its memory");
        }
    }
}
