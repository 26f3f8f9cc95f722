package dohost_test

import (
	"fmt"

	"github.com/dohost/dohost"
)

func ExampleParsePlace() {
	place, err := dohost.ParsePlace("effect")
	if err != nil {
		panic(err)
	}
	chaos := dohost.Chaos{Seed: 7, Rate: 0.01, Places: []dohost.Place{place}}
	fmt.Println(chaos.Places, len(dohost.Places()))
	_, err = dohost.ParsePlace("send")
	fmt.Println(err != nil)
	// Output:
	// [effect] 17
	// true
}
