package main

import (
	"bytes"
	_ "embed"
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

//go:embed report.html.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"number": number, "duration": duration, "perOp": perOp,
	"count": func(n int64) string { return perOp(float64(n), "%.0f") },
	"ratio": func(r Row, i int) string {
		if i == 0 {
			return ""
		}
		return perOp(r.ratio(r.Sides[i].Side), "%.2f")
	},
}).Parse(reportText))

// html returns a report in one file, with plots and without external resources.
func (r *Results) html() ([]byte, error) {
	type shown struct {
		Row
		TargetResult string
		Plot         template.HTML
	}
	page := struct {
		Facts  []string
		Rows   []shown
		Curves map[string]template.HTML
	}{Facts: r.facts(), Curves: map[string]template.HTML{}}
	for _, row := range r.Rows {
		svg, err := row.bars()
		if err != nil {
			return nil, err
		}
		page.Rows = append(page.Rows, shown{row, row.targetResult(), svg})
	}
	for _, c := range r.Curves {
		svg, err := c.plot()
		if err != nil {
			return nil, err
		}
		page.Curves[c.What] = svg
	}
	var b bytes.Buffer
	err := reportTemplate.Execute(&b, page)
	return b.Bytes(), err
}

// bars shows each round of each side, or nothing if there was one side and one round.
func (r *Row) bars() (template.HTML, error) {
	if len(r.Sides) == 1 && len(r.Sides[0].Rounds) < 2 {
		return "", nil
	}
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = r.Unit, 0
	p.X.Label.Text = "round"
	p.Legend.Top = true
	for i, f := range r.Sides {
		var xys plotter.XYs
		for n, v := range f.Rounds {
			xys = append(xys, plotter.XY{X: float64(n + 1), Y: v})
		}
		if err := addLine(p, i, f.Side, xys); err != nil {
			return "", err
		}
	}
	return svg(p)
}

func (c *Curve) plot() (template.HTML, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	if !c.LinearX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	p.Legend.Top = true
	for i, l := range c.Lines {
		var xys plotter.XYs
		for _, at := range l.Points {
			xys = append(xys, plotter.XY{X: at[0], Y: at[1]})
		}
		if err := addLine(p, i, l.Name, xys); err != nil {
			return "", err
		}
	}
	return svg(p)
}

func addLine(p *plot.Plot, i int, name string, xys plotter.XYs) error {
	line, points, err := plotter.NewLinePoints(xys)
	if err != nil {
		return err
	}
	line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), draw.CircleGlyph{}
	p.Add(line, points)
	p.Legend.Add(name, line)
	return nil
}

// headroom is the share of a plot that is free above the lines, for the names.
const headroom = 0.3

func svg(p *plot.Plot) (template.HTML, error) {
	if _, log := p.Y.Scale.(plot.LogScale); log {
		p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, headroom)
	} else {
		p.Y.Max += headroom * (p.Y.Max - p.Y.Min)
	}
	canvas := vgsvg.New(14*vg.Centimeter, 6*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, text, _ := bytes.Cut(b.Bytes(), []byte("?>"))
	return template.HTML(text), nil
}
