//! winning_post
