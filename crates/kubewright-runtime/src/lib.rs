//! The controller runtime: manager, caches, queue, controllers, events, probes, metrics.
