// Command bench measures dohost against its physical limit, raw Pebble with the same options as
// the store, in the same run: both sides do the same work, round by round in turn, on the same
// file system.
//
//	go run ./bench                 everything
//	go run ./bench -run 'P1|P3'    some experiments
//	go run ./bench -peer workerd   also compares Cloudflare's runtime, which npm installs
//
// A figure counts only if the work was done: after the rounds the program reads the contents of
// each side, and a side that lost, skipped or doubled an operation has no figure. Syncs are counted
// at the file system. The first round of each side warms up, and is not in the results. A limit
// that is slower than dohost is reported as broken.
package main
