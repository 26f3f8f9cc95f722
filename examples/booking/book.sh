#!/bin/sh
# Books a seat: one line of $BOOKINGS for each key. The input is the JSON of the call.
log=${BOOKINGS:-bookings.log}
read -r input
grep -qs "^$DOHOST_KEY " "$log" || echo "$DOHOST_KEY $input" >>"$log"
for _ in 1 2 3 4 5 6 7 8 9 10; do # the seat takes long to print
	[ -n "$BOOK_PRINTED" ] && while ! [ -e "$BOOK_PRINTED" ]; do sleep 0.1; done && break
	sleep 1
done
echo "Booked: $input. Attempt $DOHOST_ATTEMPT."
