// Command bench measures dohost against its physical limit, raw Pebble with the very
// options of the store, in the same run: both sides do the same work, round by round in
// turn, on the same file system.
//
//	go run ./bench                 all of it
//	go run ./bench -run 'P1|P3'    some
//	go run ./bench -peer workerd   beside Cloudflare's runtime too, which npm installs
//
// A figure counts only if the work was done: after the rounds each side is asked for
// what it holds, and a side that lost, skipped or doubled something has no figure. Syncs
// are counted at the file system. The first round of each side warms up, and is not
// shown. A limit that is slower than what it limits is reported as broken.
package main
