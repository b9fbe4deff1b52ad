//! The program, started as a process: its table, its picture, its errors and its shutdown.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod running;

use std::fs;
use std::process::{Command, Output};

use flash_sale::http_buyer::HttpBuyer;
use flash_sale::shop::Access;
use flash_sale::{SaleReply, Way};
use running::Service;
use rustix::process::Signal;
use tokio::task::JoinSet;

fn flash_sale(words: &[&str], temporary: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
    command.args(words).env("TMPDIR", temporary).env_remove("FLASH_SALE_DATABASE");
    command.output().unwrap()
}

#[test]
fn without_a_database_every_way_is_driven_and_no_file_is_left() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = tempfile::tempdir().unwrap();
    let picture = kept.path().join("sale.svg");
    for over in [&[][..], &["--http"]] {
        let words = [
            &["--buyers", "40", "--stock", "5", "--rate", "1000/s burst 9"],
            over,
            &["--svg", picture.to_str().unwrap()],
        ];
        let output = flash_sale(&words.concat(), temporary.path());
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stderr}");
        assert_eq!(stderr, "", "no progress bar without a terminal");
        for way in Way::ALL {
            let lines = stdout.lines().filter(|line| line.starts_with(way.name()));
            assert_eq!(lines.count(), 2, "{stdout}");
        }
        assert!(fs::read_to_string(&picture).unwrap().ends_with("</svg>\n"));
    }
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn an_error_says_what_to_change_and_shows_no_password() {
    let temporary = tempfile::tempdir().unwrap();
    for (words, why) in [
        (
            &["drive", "--database", "mysql://me:secret@db"][..],
            "write sqlite://FILE or postgres://",
        ),
        (
            &["drive", "--database", "postgres://me:secret@127.0.0.1:1/db"],
            "cannot open postgres://me:***@127.0.0.1:1/db",
        ),
        (&["serve", "--rate", "quick"], "--rate <RULE>"),
        (&["drive", "--buyers", "0"], "--buyers <N>"),
    ] {
        let output = flash_sale(words, temporary.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(why), "{words:?}: {stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}

#[tokio::test]
async fn on_sigterm_a_buyer_that_waits_for_a_token_is_served_first() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("sale.db").display());
    let mut service = Service::start(&["--database", &url, "--rate", "1/s burst 1"]);
    let mut visitor = HttpBuyer::arrive(service.address).await.unwrap();
    let sold = visitor.buy(Access::Guarded, Way::Condition, 0).await.unwrap();
    assert_eq!(sold, SaleReply::Sold { order: 1, left: 99 });
    // One token is added within a second. One of the buyers waits for it, and the others are refused immediately.
    let mut tasks = JoinSet::new();
    for buyer in 1..=4 {
        let mut visitor = HttpBuyer::arrive(service.address).await.unwrap();
        tasks.spawn(
            async move { visitor.buy(Access::Guarded, Way::Condition, buyer).await.unwrap() },
        );
    }
    for _ in 0..3 {
        let refused = tasks.join_next().await.unwrap().unwrap();
        assert!(matches!(refused, SaleReply::Busy { .. }), "{refused:?}");
    }
    service.signal(Signal::TERM);
    let waited = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(waited, SaleReply::Sold { order: 2, left: 98 });
    let (is_success, output) = service.end();
    assert!(is_success, "{output}");
    assert!(output.ends_with("stopped: 2 sold, 2 orders\n"), "{output}");
}
