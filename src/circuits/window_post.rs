//! window_post
