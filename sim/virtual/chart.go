package virtual

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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

// tierLabels say what the tiers are.
var tierLabels = map[string]string{"lt1k": "below 1k", "1k_4k": "1k to 4k", "4k_16k": "4k to 16k", "gt16k": "16k and more"}

// chartWindow is how many seconds one point of a chart over time stands for.
const chartWindow = 10

// chart is a plot with its legend beside it: lines leave no corner free.
type chart struct {
	*plot.Plot
	legend plot.Legend
}

// Charts draws the comparison into a folder, each chart as PNG and SVG, and
// returns the files' names.
func (c *Comparison) Charts(folder string) ([]string, error) {
	title := fmt.Sprintf("%s at %.0f requests/s, %d gateways", c.Scenario, c.Rate, c.Gateways)
	var files []string
	for _, one := range []struct {
		name string
		draw func(p *chart, title string) error
	}{{"ttft", c.drawTTFT}, {"hits", c.drawHits}, {"load", c.drawLoad}, {"workers", c.drawWorkers}} {
		p := &chart{plot.New(), plot.NewLegend()}
		p.BackgroundColor = color.White
		p.legend.Top, p.legend.Left, p.legend.Padding = true, true, vg.Points(3)
		if err := one.draw(p, title); err != nil {
			return files, fmt.Errorf("draw %s: %w", one.name, err)
		}
		for _, kind := range []string{"png", "svg"} {
			file := filepath.Join(folder, c.Scenario+"-"+one.name+"."+kind)
			if err := p.save(file, kind); err != nil {
				return files, fmt.Errorf("write %s: %w", file, err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

func (p *chart) save(path, kind string) error {
	const width, height, legend = 9 * vg.Inch, 4.5 * vg.Inch, 1.3 * vg.Inch
	canvas, err := draw.NewFormattedCanvas(width, height, kind)
	if err != nil {
		return err
	}
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, 0, -legend, 0, 0))
	p.legend.Draw(draw.Crop(whole, width-legend+vg.Points(8), 0, 0, -vg.Points(24)))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err = canvas.WriteTo(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// drawTTFT is the share of requests that had their first token by a time.
func (c *Comparison) drawTTFT(p *chart, title string) error {
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Time to first token, "+title, "ms", "share of requests"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 1
	for i, name := range c.Order {
		sorted := c.Policies[name].Runs[0].TTFTs
		var points plotter.XYs
		for k := 0; k <= 400; k++ {
			at := min(len(sorted)-1, k*len(sorted)/400)
			if at >= 0 && sorted[at] > 0 {
				points = append(points, plotter.XY{X: sorted[at], Y: float64(at) / float64(len(sorted))})
			}
		}
		if err := p.line(name, i, points); err != nil {
			return err
		}
	}
	return nil
}

// drawHits is the hit rate by prompt length, of the lengths that came.
func (c *Comparison) drawHits(p *chart, title string) error {
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Cached share of prompt tokens, "+title, "prompt length in tokens", "share"
	p.Y.Min, p.Y.Max = 0, 1
	var lengths, names []string
	for _, t := range tiers {
		for _, policy := range c.Policies {
			if policy.ByTier[t.name] != nil {
				lengths, names = append(lengths, tierLabels[t.name]), append(names, t.name)
				break
			}
		}
	}
	width := 7 * vg.Inch * 0.8 / vg.Length(max(1, len(names)*len(c.Order)))
	for i, name := range c.Order {
		var values plotter.Values
		for _, t := range names {
			v := 0.0
			if tier := c.Policies[name].ByTier[t]; tier != nil {
				v = tier.HitRate
			}
			values = append(values, v)
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colors[i%len(colors)], 0
		if i >= len(colors) { // the colours begin anew: a frame tells them apart
			bars.LineStyle.Width = vg.Points(1.2)
		}
		bars.Offset = width * vg.Length(float64(i)-float64(len(c.Order)-1)/2)
		p.Add(bars)
		p.legend.Add(name, bars)
	}
	p.NominalX(lengths...)
	return nil
}

// drawLoad is how unevenly arrivals lay on workers: the busiest worker's share
// against the mean.
func (c *Comparison) drawLoad(p *chart, title string) error {
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Busiest worker against the mean, "+title, "virtual seconds", fmt.Sprintf("arrivals of %d s, busiest / mean", chartWindow)
	p.Y.Min = 1
	for i, name := range c.Order {
		var points plotter.XYs
		for _, w := range windows(c.Policies[name].Runs[0].Timeline) {
			sums, total := make([]int, len(w[0].Arrivals)), 0
			for _, b := range w {
				for worker, n := range b.Arrivals {
					sums[worker] += n
					total += n
				}
			}
			points = append(points, plotter.XY{X: float64(w[0].Second), Y: float64(slices.Max(sums)) * float64(len(sums)) / float64(max(total, 1))})
		}
		if err := p.line(name, i, points); err != nil {
			return err
		}
	}
	return nil
}

// drawWorkers is the load of every worker under the first policy.
func (c *Comparison) drawWorkers(p *chart, title string) error {
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Load of each worker under "+c.Order[0]+", "+title, "virtual seconds", fmt.Sprintf("arrivals of %d s", chartWindow)
	p.Y.Min = 0
	parts := windows(c.Policies[c.Order[0]].Runs[0].Timeline)
	if len(parts) == 0 {
		return nil
	}
	for worker := range parts[0][0].Arrivals {
		var points plotter.XYs
		for _, w := range parts {
			n := 0
			for _, b := range w {
				n += b.Arrivals[worker]
			}
			points = append(points, plotter.XY{X: float64(w[0].Second), Y: float64(n)})
		}
		name := fmt.Sprintf("worker %d", worker)
		if worker >= mostInLegend {
			name = ""
		}
		if err := p.line(name, worker, points); err != nil {
			return err
		}
	}
	return nil
}

// mostInLegend is how many workers have their names beside the chart.
const mostInLegend = 16

// windows cuts a run into parts of equal length, without its end: what ebbs away then says nothing.
func windows(timeline []Bucket) (parts [][]Bucket) {
	most := 0
	var arrivals []int
	for from := 0; from+chartWindow <= len(timeline); from += chartWindow {
		n := 0
		for _, b := range timeline[from : from+chartWindow] {
			for _, k := range b.Arrivals {
				n += k
			}
		}
		parts, arrivals = append(parts, timeline[from:from+chartWindow]), append(arrivals, n)
		most = max(most, n)
	}
	for len(parts) > 0 && arrivals[len(parts)-1] < most/2 {
		parts = parts[:len(parts)-1]
	}
	return parts
}

// line adds one to the chart, and to its legend if it has a name.
func (p *chart) line(name string, i int, points plotter.XYs) error {
	if len(points) == 0 {
		return nil
	}
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = colors[i%len(colors)], vg.Points(1.6)
	if i/len(colors)%2 == 1 { // the colours begin anew
		l.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
	}
	p.Add(l)
	if name != "" {
		p.legend.Add(name, l)
	}
	return nil
}
