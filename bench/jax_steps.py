"""The MLP and the GPT of models.py in plain JAX: a contestant of plugins.py, by a Python with jax.

Same shapes, batches, losses and optimizers; the step is jitted and its state donated. It answers as
plugins.py's own workers do (contestant.py).
"""

# jax, which has the types, is not installed beside us.
# ruff: noqa: ANN001, ANN201, ANN202
# mypy: ignore-errors
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from contestant import serve

KEYS = iter(jax.random.split(jax.random.PRNGKey(0), 200))


def linear(inputs, outputs):
    """Weights [inputs, outputs] and a bias."""
    bound = inputs**-0.5
    draw = {"minval": -bound, "maxval": bound}
    return {
        "w": jax.random.uniform(next(KEYS), (inputs, outputs), **draw),
        "b": jax.random.uniform(next(KEYS), (outputs,), **draw),
    }


def apply(p, x):
    """A linear layer."""
    return x @ p["w"] + p["b"]


def cross_entropy(logits, labels):
    """Mean over all rows."""
    logits = logits.reshape(-1, logits.shape[-1])
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels.reshape(-1, 1), 1)
    return -picked.mean()


def norm(p, x):
    """Layer norm over the last dimension."""
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * p["g"] + p["b"]


def block(p, x):
    """Causal attention of 6 heads, then two layers with GELU between."""
    b, t, c = x.shape
    parts = jnp.split(apply(p["qkv"], norm(p["norm1"], x)), 3, -1)
    q, k, v = (a.reshape(b, t, 6, c // 6).transpose(0, 2, 1, 3) for a in parts)
    scores = q @ k.transpose(0, 1, 3, 2) * (c // 6) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    y = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, t, c)
    x = x + apply(p["out"], y)
    wide = jax.nn.gelu(apply(p["wide"], norm(p["norm2"], x)), approximate=False)
    return x + apply(p["narrow"], wide)


def mlp():
    """Parameters, forward pass and batches of the MLP."""
    params = [linear(256, 512), linear(512, 512), linear(512, 10)]

    def forward(p, x):
        for layer in p[:-1]:
            x = jax.nn.relu(apply(layer, x))
        return apply(p[-1], x)

    rng = np.random.default_rng(0)
    sizes = [(rng.standard_normal((128, 256), "f"), rng.integers(0, 10, 128)) for _ in range(4)]
    return params, forward, sizes


def gpt():
    """Parameters, forward pass and batches of the GPT."""

    def ones():
        return {"g": jnp.ones(384), "b": jnp.zeros(384)}

    params = {
        "tokens": jax.random.normal(next(KEYS), (512, 384)),
        "places": jax.random.normal(next(KEYS), (128, 384)) * 0.02,
        "blocks": [
            {"norm1": ones(), "norm2": ones(), "qkv": linear(384, 1152), "out": linear(384, 384)}
            | {"wide": linear(384, 1536), "narrow": linear(1536, 384)}
            for _ in range(6)
        ],
        "norm": ones(),
        "head": linear(384, 512)["w"],
    }

    def forward(p, ids):
        x = p["tokens"][ids] + p["places"]
        for b in p["blocks"]:
            x = block(b, x)
        return norm(p["norm"], x) @ p["head"]

    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 512, (8, 129)) for _ in range(4)]
    return params, forward, [(t[:, :-1], t[:, 1:]) for t in ids]


def sgd(params, grads, state):
    """Plain SGD, rate 0.01."""
    return jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, grads), state


def adamw(params, grads, state):
    """AdamW as PyTorch's defaults have it, rate 3e-4, weight decay 0.01."""
    each = jax.tree_util.tree_map
    m, v, t = state
    t = t + 1
    m = each(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = each(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)

    def moved(p, a, b):
        root = jnp.sqrt(b / (1 - 0.999**t)) + 1e-8
        return p * (1 - 3e-4 * 0.01) - 3e-4 * (a / (1 - 0.9**t)) / root

    return each(moved, params, m, v), (m, v, t)


def main():
    """`jax_steps.py MODEL STEPS`."""
    name, steps = sys.argv[1], int(sys.argv[2])
    params, forward, batches = {"mlp": mlp, "gpt": gpt}[name]()
    update, state = sgd, ()
    if name == "gpt":
        zeros = [jax.tree_util.tree_map(jnp.zeros_like, params) for _ in range(2)]
        update, state = adamw, (*zeros, jnp.zeros(()))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, x, y):
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(forward(p, x), y))(params)
        return *update(params, grads, state), loss

    def train(count):
        nonlocal params, state
        for i in range(count):
            params, state, loss = step(params, state, *map(jnp.asarray, batches[i % 4]))
        jax.block_until_ready((params, loss))
        return loss

    serve(train, steps)


main()
