package chat

import (
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

const (
	// listedModelCalls is how many calls of models are listed, the newest.
	listedModelCalls = 20
	// listedDays is how many days are listed, the newest.
	listedDays = 7
)

// inspectUsage yields the total of the usage, those of the newest days, and the newest calls, and reports whether the consumer wants
// more.
func inspectUsage(v *dohost.Snapshot, yield func(dohost.Resource, error) bool) bool {
	var total []totalRow
	var days []totalRow
	for row, err := range usageTotals.Scan(v, nil) { // the replies are last: see their key
		if err != nil {
			yield(dohost.Resource{}, err)
			return false
		}
		switch row.Value.Kind {
		case agentScope:
			total = append(total, row.Value)
			continue
		case dayScope:
			days = append(days, row.Value)
			continue
		}
		break
	}
	for i := len(days) - 1; i >= max(0, len(days)-listedDays); i-- {
		total = append(total, days[i])
	}
	for i := range total {
		if !yield(usageDetail(&total[i]), nil) {
			return false
		}
	}
	return newestOf(&modelCalls, v, "", listedModelCalls, all[modelCallRow], modelCallDetail, yield)
}

// usageDetail returns the detail of a total.
func usageDetail(r *totalRow) dohost.Resource {
	d := dohost.Resource{Kind: detailUsage, ID: "total", Counts: r.Amounts.counts(), Text: r.Amounts.text()}
	if r.Kind == dayScope {
		d.ID = r.Name
	}
	d.Counts["calls"] = r.Amounts.Calls
	d.Text = fmt.Sprintf("%d calls, %s", r.Amounts.Calls, d.Text)
	return d
}

// openCall is the state of a call whose row has no end: it runs, or the end of its incarnation has interrupted it, and the object has made
// no call since. A snapshot has no incarnation.
const openCall = "running-or-interrupted"

// modelCallDetail returns the detail of a call of a model.
func modelCallDetail(r *modelCallRow) dohost.Resource {
	d := dohost.Resource{
		Kind: detailModelCall, ID: fmt.Sprint(r.Number), State: string(r.Outcome), Counts: r.Amounts.counts(),
		Fields: map[string]string{"purpose": string(r.Purpose), "since": timeText(r.Began)},
	}
	if r.open() {
		d.State = openCall
	}
	text := []string{"for a " + string(r.Purpose)}
	for _, f := range []struct{ name, value string }{{"worker", r.Worker}, {"request", r.Request}, {"message", r.Message}, {"model", r.Model}} {
		if f.value == "" {
			continue
		}
		d.Fields[f.name] = f.value
		if f.name != "message" {
			text = append(text, f.name+" "+f.value)
		}
	}
	d.Text = strings.Join(append(text, "since "+timeText(r.Began), r.Amounts.text()), ", ")
	return d
}

func (a *usageAmounts) counts() map[string]int64 {
	return map[string]int64{
		"input_tokens": a.Input, "cached_tokens": a.Cached, "output_tokens": a.Output, "reasoning_tokens": a.Reasoning, "cost": a.Cost,
		"milliseconds": a.Millis, "estimated": a.Estimates,
	}
}

// text returns the amounts for a reader.
func (a *usageAmounts) text() string {
	list := []string{fmt.Sprintf("%d input tokens", a.Input)}
	if a.Cached > 0 {
		list[0] += fmt.Sprintf(" (%d cached)", a.Cached)
	}
	list = append(list, fmt.Sprintf("%d output tokens", a.Output))
	if a.Cost > 0 {
		list = append(list, fmt.Sprintf("cost %d.%06d", a.Cost/1e6, a.Cost%1e6))
	}
	list = append(list, (time.Duration(a.Millis) * time.Millisecond).String())
	switch {
	case a.Estimates > 0 && a.Calls > 1:
		list = append(list, fmt.Sprintf("%d calls estimated", a.Estimates))
	case a.Estimates > 0:
		list = append(list, "estimated")
	}
	return strings.Join(list, ", ")
}
