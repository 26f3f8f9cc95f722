package chat

import "encoding/json"

// prompt returns the prompt of the next answer.
func (a *answerRun) prompt() *Prompt {
	partial, interrupted := partsForModel(a.r.Partial())
	return &Prompt{
		System: a.o.System, Messages: a.history, Partial: partial, Interrupted: interrupted || a.l.inStep(), Tools: a.specs(),
		Checkpoint: a.r.Checkpoint,
	}
}

func (a *answerRun) specs() (specs []ToolSpec) {
	for _, t := range a.o.Tools {
		specs = append(specs, t.ToolSpec)
	}
	var clients []ToolSpec
	if raw := a.r.Tools(); raw != nil && json.Unmarshal(raw, &clients) == nil {
		for _, t := range clients {
			if _, ours := a.tool(t.Name); !ours && t.Name != budgetTool { // providers refuse duplicate tools
				specs = append(specs, t)
			}
		}
	}
	return specs
}
