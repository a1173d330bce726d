// What lies between a transformer's matrix products, fused for CPUs: one pass over the rows instead of five.
//
// Plain functions over raw memory, and operators of PyTorch around them (through its stable ABI, which compiles in
// seconds). functions.py allocates and checks shapes. Activations are float or bfloat16 (arithmetic is float), parameters
// float. Every row is computed by one thread and sums over rows are made in a fixed number of parts, so the number of
// threads changes nothing.
//
// Compiled without -ffinite-math-only: a NaN must stay one, the training loop looks for it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using std::int64_t;

constexpr int64_t PARTS = 32;  // of a sum over rows

struct bfloat16 {
    uint16_t bits;
};

inline float load(float x) { return x; }

inline float load(bfloat16 x) {
    const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline void store(float& to, float value) { to = value; }

inline void store(bfloat16& to, float value) {  // to the nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    to.bits = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// e^x by a polynomial on [-ln 2 / 2, ln 2 / 2] and the exponent's bits; relative error below 2e-7.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float n = std::nearbyint(x * 1.44269504f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

// The normal distribution function and density; Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7.
inline void normal(float x, float& distribution, float& density) {
    const float bell = exponential(-0.5f * x * x), z = std::fabs(x) * 0.70710678f;
    const float t = 1.0f / (1.0f + 0.3275911f * z);
    const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float tail = 0.5f * p * bell;
    distribution = x > 0 ? 1.0f - tail : tail;
    density = bell * 0.39894228f;
}

// Which elements a dropout keeps: a hash of the element's number, so that backward need not remember it.
struct Dropout {
    uint32_t threshold, addend, factor;
    float scale;

    Dropout(float p, uint64_t key)
        : threshold(static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0)), scale(1.0f / (1.0f - p)) {
        key += 0x9e3779b97f4a7c15u;  // SplitMix64: keys that are neighbours become strangers
        key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
        key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
        key ^= key >> 31;
        addend = static_cast<uint32_t>(key);
        factor = static_cast<uint32_t>(key >> 32) | 1;
    }

    inline float factor_of(uint32_t element) const {
        uint32_t x = element * 0x9e3779b1u + addend;
        x = (x ^ (x >> 15)) * factor;
        x = (x ^ (x >> 13)) * 0x85ebca6bu;
        x ^= x >> 16;
        return scale * static_cast<float>(x >= threshold);
    }
};

// Sums over rows that were made in parts: [PARTS, stride] -> [width].
void add_parts(const float* parts, int64_t stride, int64_t width, float* sums) {
    for (int64_t i = 0; i < width; i++) {
        float sum = 0;
        for (int64_t part = 0; part < PARTS; part++) sum += parts[part * stride + i];
        sums[i] = sum;
    }
}

// LayerNorm(residual + dropout(x + added)); `added` is the bias of the product that x is.
template <typename T>
void add_norm_forward(const T* x, const float* added, const T* residual, const float* weight, const float* bias,
                      int64_t rows, int64_t width, float eps, float p, uint64_t key, T* out, T* normalized,
                      float* inverse_std) {
    const Dropout shared(p, key);
#pragma omp parallel
    {
        const Dropout dropout = shared;
        std::vector<float> buffer(width);
        float* sums = buffer.data();
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            const int64_t start = row * width;
            const uint32_t first = static_cast<uint32_t>(start);
            float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
            for (int64_t i = 0; i < width; i++) {
                const float value = load(x[start + i]) + added[i];
                sums[i] = load(residual[start + i]) + value * dropout.factor_of(first + static_cast<uint32_t>(i));
                total += sums[i];
            }
            const float mean = total / width;
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < width; i++) {
                sums[i] -= mean;
                squares += sums[i] * sums[i];
            }
            const float scale = 1.0f / std::sqrt(squares / width + eps);
            inverse_std[row] = scale;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) store(out[start + i], sums[i] * scale * weight[i] + bias[i]);
            if (normalized != nullptr) {  // backward will ask for it
#pragma omp simd
                for (int64_t i = 0; i < width; i++) store(normalized[start + i], sums[i] * scale);
            }
        }
    }
}

template <typename T>
void add_norm_backward(const T* grad, const T* normalized, const float* inverse_std, const float* weight, int64_t rows,
                       int64_t width, float p, uint64_t key, T* grad_x, float* grad_added, T* grad_residual,
                       float* grad_weight, float* grad_bias) {
    const Dropout shared(p, key);
    const int64_t stride = 3 * width;
    std::vector<float> parts(PARTS * stride, 0.0f);
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        const Dropout dropout = shared;
        float *weight_sums = &parts[part * stride], *bias_sums = weight_sums + width, *added_sums = bias_sums + width;
        for (int64_t row = part * rows / PARTS; row < (part + 1) * rows / PARTS; row++) {
            const int64_t start = row * width;
            const uint32_t first = static_cast<uint32_t>(start);
            float mean = 0, slope = 0;
#pragma omp simd reduction(+ : mean, slope)
            for (int64_t i = 0; i < width; i++) {
                const float g = load(grad[start + i]), n = load(normalized[start + i]);
                weight_sums[i] += g * n;
                bias_sums[i] += g;
                mean += g * weight[i];
                slope += g * weight[i] * n;
            }
            mean /= width;
            slope /= width;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                const float g = load(grad[start + i]), n = load(normalized[start + i]);
                const float value = inverse_std[row] * (g * weight[i] - mean - n * slope);
                const float kept = value * dropout.factor_of(first + static_cast<uint32_t>(i));
                store(grad_residual[start + i], value);
                store(grad_x[start + i], kept);
                added_sums[i] += kept;
            }
        }
    }
    add_parts(&parts[0], stride, width, grad_weight);
    add_parts(&parts[width], stride, width, grad_bias);
    add_parts(&parts[2 * width], stride, width, grad_added);
}

// GELU of x + added, and its derivative where backward will ask for it.
template <typename T>
void gelu_forward(const T* x, const float* added, int64_t rows, int64_t width, T* out, T* derivative) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const T* line = x + row * width;
        T *to = out + row * width, *slope = derivative + row * width;
        if (derivative != nullptr) {
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                const float value = load(line[i]) + added[i];
                float distribution, density;
                normal(value, distribution, density);
                store(to[i], value * distribution);
                store(slope[i], distribution + value * density);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                const float value = load(line[i]) + added[i];
                float distribution, density;
                normal(value, distribution, density);
                store(to[i], value * distribution);
            }
        }
    }
}

template <typename T>
void gelu_backward(const T* grad, const T* derivative, int64_t rows, int64_t width, T* grad_x, float* grad_added) {
    std::vector<float> parts(PARTS * width, 0.0f);
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        float* sums = &parts[part * width];
        for (int64_t row = part * rows / PARTS; row < (part + 1) * rows / PARTS; row++) {
            const int64_t start = row * width;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                const float value = load(grad[start + i]) * load(derivative[start + i]);
                store(grad_x[start + i], value);
                sums[i] += value;
            }
        }
    }
    add_parts(&parts[0], width, width, grad_added);
}

// Rows [B, T, kinds, H, size] to heads [kinds, B, H, T, size], with a bias [kinds, H, size] or without.
template <typename T>
void split_heads(const T* rows, const float* added, int64_t batch, int64_t length, int64_t kinds, int64_t heads,
                 int64_t size, T* out) {
    const int64_t width = kinds * heads * size;
#pragma omp parallel for schedule(static)
    for (int64_t group = 0; group < kinds * batch * heads; group++) {
        const int64_t kind = group / (batch * heads), example = group / heads % batch, head = group % heads;
        const int64_t column = (kind * heads + head) * size;
        for (int64_t t = 0; t < length; t++) {
            const T* from = rows + (example * length + t) * width + column;
            T* to = out + (group * length + t) * size;
            if (added == nullptr) {
                std::memcpy(to, from, size * sizeof(T));
            } else {
#pragma omp simd
                for (int64_t i = 0; i < size; i++) store(to[i], load(from[i]) + added[column + i]);
            }
        }
    }
}

// The way back, [kinds, B, H, T, size] to [B, T, kinds, H, size]; where asked for, also the sums over all B T rows.
template <typename T>
void merge_heads(const T* heads_first, int64_t batch, int64_t length, int64_t kinds, int64_t heads, int64_t size,
                 T* out, float* sums) {
    const int64_t width = kinds * heads * size, rows = batch * length;
    std::vector<float> parts(sums == nullptr ? 0 : PARTS * width, 0.0f);
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        for (int64_t row = part * rows / PARTS; row < (part + 1) * rows / PARTS; row++) {
            const int64_t example = row / length, t = row % length;
            for (int64_t column = 0; column < kinds * heads; column++) {
                const int64_t kind = column / heads, head = column % heads;
                const T* from = heads_first + (((kind * batch + example) * heads + head) * length + t) * size;
                std::memcpy(out + row * width + column * size, from, size * sizeof(T));
                if (sums != nullptr) {
                    float* to = &parts[part * width + column * size];
#pragma omp simd
                    for (int64_t i = 0; i < size; i++) to[i] += load(from[i]);
                }
            }
        }
    }
    if (sums != nullptr) add_parts(&parts[0], width, width, sums);
}

// Scores [B, H, T, T] to attention probabilities, in place, and what dropout leaves of them. The bias, where there is
// one, is [B or 1, 1, T or 1, T], told by the strides of its first and third dimension.
template <typename T>
void softmax_forward(T* scores, const float* bias, int64_t batch_stride, int64_t row_stride, int64_t batch,
                     int64_t heads, int64_t length, float scale, float p, uint64_t key, T* dropped) {
    const Dropout shared(p, key);
#pragma omp parallel
    {
        const Dropout dropout = shared;
        std::vector<float> buffer(length);
        float* values = buffer.data();
#pragma omp for schedule(static)
        for (int64_t row = 0; row < batch * heads * length; row++) {
            T* line = scores + row * length;
            float highest = -INFINITY, total = 0;
            if (bias != nullptr) {
                const float* added = bias + row / (heads * length) * batch_stride + row % length * row_stride;
                for (int64_t i = 0; i < length; i++) values[i] = load(line[i]) * scale + added[i];
            } else {
                for (int64_t i = 0; i < length; i++) values[i] = load(line[i]) * scale;
            }
#pragma omp simd reduction(max : highest)
            for (int64_t i = 0; i < length; i++) highest = values[i] > highest ? values[i] : highest;
#pragma omp simd reduction(+ : total)
            for (int64_t i = 0; i < length; i++) {
                values[i] = exponential(values[i] - highest);
                total += values[i];
            }
            const float factor = 1.0f / total;
            const uint32_t first = static_cast<uint32_t>(row * length);
#pragma omp simd
            for (int64_t i = 0; i < length; i++) {
                const float value = values[i] * factor;
                store(line[i], value);
                store(dropped[row * length + i], value * dropout.factor_of(first + static_cast<uint32_t>(i)));
            }
        }
    }
}

// The gradient of what dropout left becomes that of the scores, in place; `dropped` is made anew.
template <typename T>
void softmax_backward(T* grad, const T* probabilities, int64_t rows, int64_t length, float scale, float p,
                      uint64_t key, T* dropped) {
    const Dropout shared(p, key);
#pragma omp parallel
    {
        const Dropout dropout = shared;
        std::vector<float> buffer(length);
        float* values = buffer.data();
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            T *line = grad + row * length, *left = dropped + row * length;
            const T* given = probabilities + row * length;
            const uint32_t first = static_cast<uint32_t>(row * length);
            float mean = 0;
#pragma omp simd reduction(+ : mean)
            for (int64_t i = 0; i < length; i++) {
                const float factor = dropout.factor_of(first + static_cast<uint32_t>(i)), probability = load(given[i]);
                store(left[i], probability * factor);
                values[i] = load(line[i]) * factor;
                mean += values[i] * probability;
            }
#pragma omp simd
            for (int64_t i = 0; i < length; i++) store(line[i], scale * load(given[i]) * (values[i] - mean));
        }
    }
}

constexpr int64_t BLOCK = 512;  // of the vocabulary, in the search for a sample

// Cross entropy of each row of logits, and one token drawn from softmax(logits): the first at which the distribution
// function passes the row's uniform.
template <typename T>
void vocabulary_forward(const T* logits, const int64_t* targets, const float* uniforms, int64_t rows, int64_t size,
                        float* losses, float* log_totals, int64_t* samples) {
    const int64_t blocks = (size + BLOCK - 1) / BLOCK;
#pragma omp parallel
    {
        std::vector<float> sums(blocks);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            const T* line = logits + row * size;
            float highest = -INFINITY;
#pragma omp simd reduction(max : highest)
            for (int64_t i = 0; i < size; i++) highest = std::max(highest, load(line[i]));
            double total = 0;
            for (int64_t block = 0; block < blocks; block++) {
                const int64_t begin = block * BLOCK, end = std::min(size, begin + BLOCK);
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t i = begin; i < end; i++) sum += exponential(load(line[i]) - highest);
                sums[block] = sum;
                total += sum;
            }
            log_totals[row] = highest + static_cast<float>(std::log(total));
            losses[row] = log_totals[row] - load(line[targets[row]]);
            double left = uniforms[row] * total;
            int64_t block = 0;
            while (block < blocks - 1 && left >= sums[block]) left -= sums[block++];
            int64_t token = block * BLOCK;
            const int64_t last = std::min(size, token + BLOCK) - 1;
            for (; token < last; token++) {
                const double share = exponential(load(line[token]) - highest);
                if (left < share) break;
                left -= share;
            }
            samples[row] = token;
        }
    }
}

template <typename T>
void vocabulary_backward(const T* logits, const int64_t* targets, const float* log_totals, const float* grad,
                         int64_t rows, int64_t size, T* grad_logits) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const T* line = logits + row * size;
        T* to = grad_logits + row * size;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) store(to[i], grad[row] * exponential(load(line[i]) - log_totals[row]));
        const int64_t target = targets[row];
        store(to[target], grad[row] * (exponential(load(line[target]) - log_totals[row]) - 1.0f));
    }
}

// Pairs i, i + size / 2 of queries and keys, the first two of [3, B, H, T, size], rotated in place by the angles of
// their position: tables [B or 1, T, size / 2], told by the stride of an example. Direction -1 rotates back.
template <typename T>
void rotate(T* heads_first, const float* cosines, const float* sines, int64_t batch, int64_t heads, int64_t length,
            int64_t size, int64_t stride, float direction) {
    const int64_t half = size / 2;
#pragma omp parallel for schedule(static)
    for (int64_t group = 0; group < 2 * batch * heads; group++) {
        const int64_t first = group / heads % batch * stride;
        for (int64_t t = 0; t < length; t++) {
            T* line = heads_first + (group * length + t) * size;
            const float *cosine = cosines + first + t * half, *sine = sines + first + t * half;
#pragma omp simd
            for (int64_t i = 0; i < half; i++) {
                const float a = load(line[i]), b = load(line[half + i]), s = direction * sine[i];
                store(line[i], a * cosine[i] - b * s);
                store(line[half + i], b * cosine[i] + a * s);
            }
        }
    }
}

// The next stream, stream + dropout(x + added), and its LayerNorm. The stream is float whatever the type of the
// products; added, bias and normalized may be missing.
template <typename T>
void residual_norm_forward(const T* x, const float* added, const float* stream, const float* weight, const float* bias,
                           int64_t rows, int64_t width, float eps, float p, uint64_t key, float* total, T* out,
                           T* normalized, float* inverse_std) {
    const Dropout shared(p, key);
#pragma omp parallel
    {
        const Dropout dropout = shared;
        std::vector<float> buffer(width), zeros(width, 0.0f);
        float* sums = buffer.data();
        const float *shift = added == nullptr ? zeros.data() : added, *offset = bias == nullptr ? zeros.data() : bias;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            const int64_t start = row * width;
            const uint32_t first = static_cast<uint32_t>(start);
            float mean = 0, squares = 0;
#pragma omp simd reduction(+ : mean)
            for (int64_t i = 0; i < width; i++) {
                const float value = load(x[start + i]) + shift[i];
                sums[i] = stream[start + i] + value * dropout.factor_of(first + static_cast<uint32_t>(i));
                mean += sums[i];
            }
            std::memcpy(total + start, sums, width * sizeof(float));
            mean /= width;
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < width; i++) {
                sums[i] -= mean;
                squares += sums[i] * sums[i];
            }
            const float scale = 1.0f / std::sqrt(squares / width + eps);
            inverse_std[row] = scale;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) store(out[start + i], sums[i] * scale * weight[i] + offset[i]);
            if (normalized != nullptr) {  // backward will ask for it
#pragma omp simd
                for (int64_t i = 0; i < width; i++) store(normalized[start + i], sums[i] * scale);
            }
        }
    }
}

// grad_total is the gradient of the sum itself; grad_added and grad_bias are missing where added and bias were.
template <typename T>
void residual_norm_backward(const T* grad, const float* grad_total, const T* normalized, const float* inverse_std,
                            const float* weight, int64_t rows, int64_t width, float p, uint64_t key, T* grad_x,
                            float* grad_added, float* grad_stream, float* grad_weight, float* grad_bias) {
    const Dropout shared(p, key);
    const int64_t stride = 3 * width;
    std::vector<float> parts(PARTS * stride, 0.0f);
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        const Dropout dropout = shared;
        float *weight_sums = &parts[part * stride], *bias_sums = weight_sums + width, *added_sums = bias_sums + width;
        for (int64_t row = part * rows / PARTS; row < (part + 1) * rows / PARTS; row++) {
            const int64_t start = row * width;
            const uint32_t first = static_cast<uint32_t>(start);
            float mean = 0, slope = 0;
#pragma omp simd reduction(+ : mean, slope)
            for (int64_t i = 0; i < width; i++) {
                const float g = load(grad[start + i]), n = load(normalized[start + i]);
                weight_sums[i] += g * n;
                bias_sums[i] += g;
                mean += g * weight[i];
                slope += g * weight[i] * n;
            }
            mean /= width;
            slope /= width;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                const float g = load(grad[start + i]), n = load(normalized[start + i]);
                const float value = grad_total[start + i] + inverse_std[row] * (g * weight[i] - mean - n * slope);
                const float kept = value * dropout.factor_of(first + static_cast<uint32_t>(i));
                grad_stream[start + i] = value;
                store(grad_x[start + i], kept);
                added_sums[i] += kept;
            }
        }
    }
    add_parts(&parts[0], stride, width, grad_weight);
    if (grad_bias != nullptr) add_parts(&parts[width], stride, width, grad_bias);
    if (grad_added != nullptr) add_parts(&parts[2 * width], stride, width, grad_added);
}

// GELU of the first half of each row of x + added times the second half.
template <typename T>
void geglu_forward(const T* x, const float* added, int64_t rows, int64_t width, T* out) {
    const std::vector<float> zeros(added == nullptr ? 2 * width : 0, 0.0f);
    const float* shift = added == nullptr ? zeros.data() : added;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const T *gates = x + row * 2 * width, *values = gates + width;
        T* to = out + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const float gate = load(gates[i]) + shift[i], value = load(values[i]) + shift[width + i];
            float distribution, density;
            normal(gate, distribution, density);
            store(to[i], gate * distribution * value);
        }
    }
}

template <typename T>
void geglu_backward(const T* grad, const T* x, const float* added, int64_t rows, int64_t width, T* grad_x,
                    float* grad_added) {
    const std::vector<float> zeros(added == nullptr ? 2 * width : 0, 0.0f);
    const float* shift = added == nullptr ? zeros.data() : added;
    std::vector<float> parts(grad_added == nullptr ? 0 : PARTS * 2 * width, 0.0f);
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        for (int64_t row = part * rows / PARTS; row < (part + 1) * rows / PARTS; row++) {
            const T *gates = x + row * 2 * width, *values = gates + width, *upstream = grad + row * width;
            T *to_gates = grad_x + row * 2 * width, *to_values = to_gates + width;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                const float gate = load(gates[i]) + shift[i], value = load(values[i]) + shift[width + i];
                const float g = load(upstream[i]);
                float distribution, density;
                normal(gate, distribution, density);
                store(to_gates[i], g * value * (distribution + gate * density));
                store(to_values[i], g * gate * distribution);
            }
            if (grad_added == nullptr) continue;
            float* sums = &parts[part * 2 * width];
#pragma omp simd
            for (int64_t i = 0; i < 2 * width; i++) sums[i] += load(to_gates[i]);
        }
    }
    if (grad_added != nullptr) add_parts(&parts[0], 2 * width, 2 * width, grad_added);
}

}  // namespace

// ---- the loops as operators electra::..., which write into tensors that they are given; autograd is in functions.py

namespace {

using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

template <typename T>
T* data(const Tensor& tensor) {
    STD_TORCH_CHECK(tensor.is_contiguous() && tensor.element_size() == sizeof(T), "another layout or type expected");
    return static_cast<T*>(tensor.data_ptr());
}

template <typename T>
T* data(const Optional& tensor) {
    return tensor ? data<T>(*tensor) : nullptr;
}

// Calls a loop with an element of the type that a tensor has.
template <typename Loop>
void in_type_of(const Tensor& tensor, Loop loop) {
    if (tensor.scalar_type() == torch::headeronly::ScalarType::Float) return loop(float());
    STD_TORCH_CHECK(tensor.scalar_type() == torch::headeronly::ScalarType::BFloat16, "float32 or bfloat16 expected");
    loop(bfloat16());
}

uint64_t number(const Optional& key) { return key ? *data<int64_t>(*key) : 0; }

int64_t last(const Tensor& tensor) { return tensor.size(tensor.dim() - 1); }

void op_add_norm_forward(Tensor x, Tensor added, Tensor residual, Tensor weight, Tensor bias, double eps, double p,
                         Optional key, Tensor out, Optional normalized, Tensor inverse_std) {
    in_type_of(x, [&](auto element) {
        using T = decltype(element);
        add_norm_forward(data<T>(x), data<float>(added), data<T>(residual), data<float>(weight), data<float>(bias),
                         inverse_std.numel(), last(x), eps, p, number(key), data<T>(out), data<T>(normalized),
                         data<float>(inverse_std));
    });
}

void op_add_norm_backward(Tensor grad, Tensor normalized, Tensor inverse_std, Tensor weight, double p, Optional key,
                          Tensor grad_x, Tensor grad_added, Tensor grad_residual, Tensor grad_weight,
                          Tensor grad_bias) {
    in_type_of(grad, [&](auto element) {
        using T = decltype(element);
        add_norm_backward(data<T>(grad), data<T>(normalized), data<float>(inverse_std), data<float>(weight),
                          inverse_std.numel(), last(grad), p, number(key), data<T>(grad_x), data<float>(grad_added),
                          data<T>(grad_residual), data<float>(grad_weight), data<float>(grad_bias));
    });
}

void op_residual_norm_forward(Tensor x, Optional added, Tensor stream, Tensor weight, Optional bias, double eps,
                              double p, Optional key, Tensor total, Tensor out, Optional normalized,
                              Tensor inverse_std) {
    in_type_of(x, [&](auto element) {
        using T = decltype(element);
        residual_norm_forward(data<T>(x), data<float>(added), data<float>(stream), data<float>(weight),
                              data<float>(bias), inverse_std.numel(), last(x), eps, p, number(key), data<float>(total),
                              data<T>(out), data<T>(normalized), data<float>(inverse_std));
    });
}

void op_residual_norm_backward(Tensor grad, Tensor grad_total, Tensor normalized, Tensor inverse_std, Tensor weight,
                               double p, Optional key, Tensor grad_x, Optional grad_added, Tensor grad_stream,
                               Tensor grad_weight, Optional grad_bias) {
    in_type_of(normalized, [&](auto element) {
        using T = decltype(element);
        residual_norm_backward(data<T>(grad), data<float>(grad_total), data<T>(normalized), data<float>(inverse_std),
                               data<float>(weight), inverse_std.numel(), last(normalized), p, number(key),
                               data<T>(grad_x), data<float>(grad_added), data<float>(grad_stream), data<float>(grad_weight),
                               data<float>(grad_bias));
    });
}

void op_gelu_forward(Tensor x, Tensor added, Tensor out, Optional derivative) {
    in_type_of(x, [&](auto element) {
        using T = decltype(element);
        gelu_forward(data<T>(x), data<float>(added), x.numel() / last(x), last(x), data<T>(out), data<T>(derivative));
    });
}

void op_gelu_backward(Tensor grad, Tensor derivative, Tensor grad_x, Tensor grad_added) {
    in_type_of(grad, [&](auto element) {
        using T = decltype(element);
        gelu_backward(data<T>(grad), data<T>(derivative), grad.numel() / last(grad), last(grad), data<T>(grad_x),
                      data<float>(grad_added));
    });
}

void op_geglu_forward(Tensor x, Optional added, Tensor out) {
    in_type_of(x, [&](auto element) {
        using T = decltype(element);
        geglu_forward(data<T>(x), data<float>(added), out.numel() / last(out), last(out), data<T>(out));
    });
}

void op_geglu_backward(Tensor grad, Tensor x, Optional added, Tensor grad_x, Optional grad_added) {
    in_type_of(x, [&](auto element) {
        using T = decltype(element);
        geglu_backward(data<T>(grad), data<T>(x), data<float>(added), grad.numel() / last(grad), last(grad),
                       data<T>(grad_x), data<float>(grad_added));
    });
}

// rows [B, T, kinds * H * size], heads [kinds, B * H, T, size]
void op_split_heads(Tensor rows, Optional added, Tensor heads) {
    in_type_of(rows, [&](auto element) {
        using T = decltype(element);
        split_heads(data<T>(rows), data<float>(added), rows.size(0), rows.size(1), heads.size(0),
                    heads.size(1) / rows.size(0), heads.size(3), data<T>(heads));
    });
}

void op_merge_heads(Tensor heads, Tensor rows, Optional sums) {
    in_type_of(rows, [&](auto element) {
        using T = decltype(element);
        merge_heads(data<T>(heads), rows.size(0), rows.size(1), heads.size(0), heads.size(1) / rows.size(0),
                    heads.size(3), data<T>(rows), data<float>(sums));
    });
}

void op_rotate(Tensor heads, Tensor cosines, Tensor sines, int64_t num_heads, double direction) {
    in_type_of(heads, [&](auto element) {
        using T = decltype(element);
        const int64_t length = heads.size(2), size = heads.size(3);
        const int64_t stride = cosines.size(0) > 1 ? length * size / 2 : 0;
        rotate(data<T>(heads), data<float>(cosines), data<float>(sines), heads.size(1) / num_heads, num_heads, length,
               size, stride, direction);
    });
}

// scores and dropped [B * H, T, T]
void op_softmax_forward(Tensor scores, Optional bias, int64_t num_heads, double scale, double p, Optional key,
                        Tensor dropped) {
    in_type_of(scores, [&](auto element) {
        using T = decltype(element);
        const int64_t length = last(scores);
        const int64_t row_stride = bias && bias->size(2) > 1 ? length : 0;
        const int64_t batch_stride = bias && bias->size(0) > 1 ? bias->size(2) * length : 0;
        softmax_forward(data<T>(scores), data<float>(bias), batch_stride, row_stride, scores.size(0) / num_heads,
                        num_heads, length, scale, p, number(key), data<T>(dropped));
    });
}

void op_softmax_backward(Tensor grad, Tensor probabilities, double scale, double p, Optional key, Tensor dropped) {
    in_type_of(grad, [&](auto element) {
        using T = decltype(element);
        softmax_backward(data<T>(grad), data<T>(probabilities), grad.numel() / last(grad), last(grad), scale, p,
                         number(key), data<T>(dropped));
    });
}

void op_vocabulary_forward(Tensor logits, Tensor targets, Tensor uniforms, Tensor losses, Tensor log_totals,
                           Tensor samples) {
    in_type_of(logits, [&](auto element) {
        using T = decltype(element);
        vocabulary_forward(data<T>(logits), data<int64_t>(targets), data<float>(uniforms), logits.size(0), last(logits),
                           data<float>(losses), data<float>(log_totals), data<int64_t>(samples));
    });
}

void op_vocabulary_backward(Tensor logits, Tensor targets, Tensor log_totals, Tensor grad, Tensor grad_logits) {
    in_type_of(logits, [&](auto element) {
        using T = decltype(element);
        vocabulary_backward(data<T>(logits), data<int64_t>(targets), data<float>(log_totals), data<float>(grad),
                            logits.size(0), last(logits), data<T>(grad_logits));
    });
}

}  // namespace

STABLE_TORCH_LIBRARY(electra, m) {
    m.def("add_norm_forward(Tensor x, Tensor added, Tensor residual, Tensor weight, Tensor bias, float eps, float p, "
          "Tensor? key, Tensor(a!) out, Tensor(b!)? normalized, Tensor(c!) inverse_std) -> ()");
    m.def("add_norm_backward(Tensor grad, Tensor normalized, Tensor inverse_std, Tensor weight, float p, Tensor? key, "
          "Tensor(a!) grad_x, Tensor(b!) grad_added, Tensor(c!) grad_residual, Tensor(d!) grad_weight, "
          "Tensor(e!) grad_bias) -> ()");
    m.def("residual_norm_forward(Tensor x, Tensor? added, Tensor stream, Tensor weight, Tensor? bias, float eps, "
          "float p, Tensor? key, Tensor(a!) total, Tensor(b!) out, Tensor(c!)? normalized, "
          "Tensor(d!) inverse_std) -> ()");
    m.def("residual_norm_backward(Tensor grad, Tensor grad_total, Tensor normalized, Tensor inverse_std, "
          "Tensor weight, float p, Tensor? key, Tensor(a!) grad_x, Tensor(b!)? grad_added, Tensor(c!) grad_stream, "
          "Tensor(d!) grad_weight, Tensor(e!)? grad_bias) -> ()");
    m.def("gelu_forward(Tensor x, Tensor added, Tensor(a!) out, Tensor(b!)? derivative) -> ()");
    m.def("gelu_backward(Tensor grad, Tensor derivative, Tensor(a!) grad_x, Tensor(b!) grad_added) -> ()");
    m.def("geglu_forward(Tensor x, Tensor? added, Tensor(a!) out) -> ()");
    m.def("geglu_backward(Tensor grad, Tensor x, Tensor? added, Tensor(a!) grad_x, Tensor(b!)? grad_added) -> ()");
    m.def("split_heads(Tensor rows, Tensor? added, Tensor(a!) heads) -> ()");
    m.def("merge_heads(Tensor heads, Tensor(a!) rows, Tensor(b!)? sums) -> ()");
    m.def("rotate(Tensor(a!) heads, Tensor cosines, Tensor sines, int num_heads, float direction) -> ()");
    m.def("softmax_forward(Tensor(a!) scores, Tensor? bias, int num_heads, float scale, float p, Tensor? key, "
          "Tensor(b!) dropped) -> ()");
    m.def("softmax_backward(Tensor(a!) grad, Tensor probabilities, float scale, float p, Tensor? key, "
          "Tensor(b!) dropped) -> ()");
    m.def("vocabulary_forward(Tensor logits, Tensor targets, Tensor uniforms, Tensor(a!) losses, "
          "Tensor(b!) log_totals, Tensor(c!) samples) -> ()");
    m.def("vocabulary_backward(Tensor logits, Tensor targets, Tensor log_totals, Tensor grad, "
          "Tensor(a!) grad_logits) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(electra, CPU, m) {
    m.impl("add_norm_forward", TORCH_BOX(&op_add_norm_forward));
    m.impl("add_norm_backward", TORCH_BOX(&op_add_norm_backward));
    m.impl("residual_norm_forward", TORCH_BOX(&op_residual_norm_forward));
    m.impl("residual_norm_backward", TORCH_BOX(&op_residual_norm_backward));
    m.impl("gelu_forward", TORCH_BOX(&op_gelu_forward));
    m.impl("gelu_backward", TORCH_BOX(&op_gelu_backward));
    m.impl("geglu_forward", TORCH_BOX(&op_geglu_forward));
    m.impl("geglu_backward", TORCH_BOX(&op_geglu_backward));
    m.impl("split_heads", TORCH_BOX(&op_split_heads));
    m.impl("merge_heads", TORCH_BOX(&op_merge_heads));
    m.impl("rotate", TORCH_BOX(&op_rotate));
    m.impl("softmax_forward", TORCH_BOX(&op_softmax_forward));
    m.impl("softmax_backward", TORCH_BOX(&op_softmax_backward));
    m.impl("vocabulary_forward", TORCH_BOX(&op_vocabulary_forward));
    m.impl("vocabulary_backward", TORCH_BOX(&op_vocabulary_backward));
}
