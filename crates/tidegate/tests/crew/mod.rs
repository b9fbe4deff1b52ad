//! An executor made by hand: it polls a task when it was woken and at no other time, so that a lost
//! wake-up shows as a task that never ends.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

pub(crate) struct Crew<T> {
    tasks: Vec<Option<Pin<Box<dyn Future<Output = T>>>>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

struct Bell {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push_back(self.task);
    }
}

impl<T> Crew<T> {
    pub(crate) fn new() -> Self {
        Self { tasks: Vec::new(), ready: Arc::default() }
    }

    /// Takes on a task, which is first polled by the next [`work`](Self::work); tells its number.
    pub(crate) fn hire(&mut self, future: impl Future<Output = T> + 'static) -> usize {
        let task = self.tasks.len();
        self.tasks.push(Some(Box::pin(future)));
        self.ready.lock().unwrap().push_back(task);
        task
    }

    /// Drops a task where it stands.
    pub(crate) fn dismiss(&mut self, task: usize) {
        self.tasks[task] = None;
    }

    /// Polls who was woken until nobody is; tells who has finished, in that order.
    pub(crate) fn work(&mut self) -> Vec<(usize, T)> {
        let mut finished = Vec::new();
        loop {
            let Some(task) = self.ready.lock().unwrap().pop_front() else { return finished };
            let Some(future) = &mut self.tasks[task] else { continue };
            let bell = Waker::from(Arc::new(Bell { task, ready: Arc::clone(&self.ready) }));
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&bell)) {
                self.tasks[task] = None;
                finished.push((task, output));
            }
        }
    }
}
