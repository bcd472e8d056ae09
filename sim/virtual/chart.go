package virtual

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// colors that stay apart on white paper and for most colour-blind readers
// (Okabe and Ito, 2008).
var colors = []color.Color{
	color.RGBA{0, 114, 178, 255},
	color.RGBA{213, 94, 0, 255},
	color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255},
	color.RGBA{86, 180, 233, 255},
	color.RGBA{230, 159, 0, 255},
	color.RGBA{60, 60, 60, 255},
	color.RGBA{160, 160, 160, 255},
}

// Charts draws the comparison into a folder, each chart as PNG and SVG, and
// returns the files' names.
func (c *Comparison) Charts(folder string) ([]string, error) {
	title := fmt.Sprintf("%s at %.0f requests/s, %d gateways", c.Scenario, c.Rate, c.Gateways)
	var files []string
	for _, chart := range []struct {
		name string
		draw func(p *plot.Plot) error
	}{
		{"ttft", func(p *plot.Plot) error { return c.drawTTFT(p, title) }},
		{"hits", func(p *plot.Plot) error { return c.drawHits(p, title) }},
		{"load", func(p *plot.Plot) error { return c.drawLoad(p, title) }},
	} {
		p := plot.New()
		p.BackgroundColor = color.White
		if err := chart.draw(p); err != nil {
			return files, fmt.Errorf("draw %s: %w", chart.name, err)
		}
		for _, kind := range []string{".png", ".svg"} {
			file := filepath.Join(folder, c.Scenario+"-"+chart.name+kind)
			if err := p.Save(8*vg.Inch, 4.5*vg.Inch, file); err != nil {
				return files, fmt.Errorf("write %s: %w", file, err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// drawTTFT is the share of requests that had their first token by a time.
func (c *Comparison) drawTTFT(p *plot.Plot, title string) error {
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Time to first token, "+title, "ms", "share of requests"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Left, p.Legend.Top = true, true
	for i, name := range c.Order {
		sorted := c.Policies[name].Runs[0].TTFTs
		var points plotter.XYs
		for k := 0; k <= 400; k++ {
			at := min(len(sorted)-1, k*len(sorted)/400)
			if at >= 0 && sorted[at] > 0 {
				points = append(points, plotter.XY{X: sorted[at], Y: float64(at) / float64(len(sorted))})
			}
		}
		if err := line(p, name, i, points); err != nil {
			return err
		}
	}
	return nil
}

// drawHits is the hit rate by prompt length.
func (c *Comparison) drawHits(p *plot.Plot, title string) error {
	p.Title.Text, p.Y.Label.Text = "Cached share of prompt tokens, "+title, "share"
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Top = true
	width := vg.Points(44 / float64(len(c.Order)))
	var names []string
	for _, t := range tiers {
		names = append(names, t.name)
	}
	p.X.Label.Text = "prompt length in tokens"
	for i, name := range c.Order {
		var values plotter.Values
		for _, t := range tiers {
			v := 0.0
			if tier := c.Policies[name].ByTier[t.name]; tier != nil {
				v = tier.HitRate
			}
			values = append(values, v)
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colors[i%len(colors)], 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(c.Order)-1)/2)
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	p.NominalX(names...)
	return nil
}

// drawLoad is how unevenly arrivals lay on workers, second by second: the
// busiest worker's share against the mean.
func (c *Comparison) drawLoad(p *plot.Plot, title string) error {
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Busiest worker against the mean, "+title, "virtual seconds", "arrivals of 10 s, busiest / mean"
	p.Y.Min = 1
	p.Legend.Top = true
	for i, name := range c.Order {
		timeline := c.Policies[name].Runs[0].Timeline
		var points plotter.XYs
		for from := 0; from < len(timeline); from += 10 {
			sums := make([]int, len(timeline[0].Arrivals))
			total := 0
			for _, b := range timeline[from:min(from+10, len(timeline))] {
				for w, n := range b.Arrivals {
					sums[w] += n
					total += n
				}
			}
			if total > 0 {
				points = append(points, plotter.XY{X: float64(timeline[from].Second), Y: float64(slices.Max(sums)) * float64(len(sums)) / float64(total)})
			}
		}
		if err := line(p, name, i, points); err != nil {
			return err
		}
	}
	return nil
}

func line(p *plot.Plot, name string, i int, points plotter.XYs) error {
	if len(points) == 0 {
		return nil
	}
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = colors[i%len(colors)], vg.Points(1.6)
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}
