//! A PostgreSQL does what its methods say, and leaves nothing behind.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use tidegate_testbed::PostgresServer;

/// Segments of shared memory in the system, of which a server that is killed leaves one.
fn segments() -> Vec<String> {
    let listed = fs::read_to_string("/proc/sysvipc/shm").expect("Linux tells");
    listed.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_server_speaks_postgres_and_leaves_neither_a_process_nor_files_nor_memory() {
    let before = segments();
    let server = PostgresServer::start();
    let (address, files) = (server.address(), server.directory().to_owned());
    assert_eq!(server.url(), format!("postgres://tidegate@{address}/postgres"));
    let mut stream = TcpStream::connect(address).unwrap();
    // "Do you speak TLS?", to which a server without certificates says no, in one letter.
    stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    drop(server);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(!files.exists());
    let left: Vec<String> = segments().into_iter().filter(|one| !before.contains(one)).collect();
    // Another test or program may have started one meanwhile, which is still in use.
    assert!(left.iter().all(|one| is_attached(one)), "{left:?}");
}

/// The seventh column: how many processes have it.
fn is_attached(segment: &str) -> bool {
    segment.split_whitespace().nth(6).is_some_and(|count| count != "0")
}
