//! An executor that polls a task only after it was woken, so that a lost wake-up shows as a task that never ends.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

pub(crate) struct Executor<T> {
    tasks: Vec<Option<Pin<Box<dyn Future<Output = T>>>>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

struct TaskWaker {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push_back(self.task);
    }
}

impl<T> Executor<T> {
    pub(crate) fn new() -> Self {
        Self { tasks: Vec::new(), ready: Arc::default() }
    }

    /// Adds a task, which the next [`run`](Self::run) polls first, and returns its number.
    pub(crate) fn spawn(&mut self, future: impl Future<Output = T> + 'static) -> usize {
        let task = self.tasks.len();
        self.tasks.push(Some(Box::pin(future)));
        self.ready.lock().unwrap().push_back(task);
        task
    }

    /// Drops a task.
    pub(crate) fn cancel(&mut self, task: usize) {
        self.tasks[task] = None;
    }

    /// Polls the woken tasks until none is left. Returns the tasks that have finished, in that order, with their outputs.
    pub(crate) fn run(&mut self) -> Vec<(usize, T)> {
        let mut finished = Vec::new();
        loop {
            let Some(task) = self.ready.lock().unwrap().pop_front() else { return finished };
            let Some(future) = &mut self.tasks[task] else { continue };
            let waker = Waker::from(Arc::new(TaskWaker { task, ready: Arc::clone(&self.ready) }));
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.tasks[task] = None;
                finished.push((task, output));
            }
        }
    }
}
