"""What the random programs are made of: statements with holes, by kind.

Holes: {a} {b} {c} tensors; {k} a small int; {n} a Python number; {d} a dim of a; {e} another dim;
{m} a length or index within dim d; {s} {p} {q} shapes and index lists made by the maker.
"""

# Exact and continuous in their input: the right bits for exact values, close for rounded ones.
UNARY = """
-{a} | {a}.abs() | {a}.relu() | {a}.square() | {a}.clone() | {a}.contiguous() | +{a} | {a}.neg() |
F.relu6({a}) | {a}.clamp(-2, 3) | {a}.clamp(min={k}) | F.hardtanh({a}) | F.leaky_relu({a}, 0.5) |
{a}.masked_fill({a}.isnan(), 0) | {a}.flip({d}) | {a}.roll({k}, {d}) | {a}.tril({k}) | {a}.triu() |
{a}.diag_embed() | {a}.repeat_interleave(2, {d}) | {a}.rot90() | {a}.tile(2) |
torch.cat([{a}, {a}], {d}) | torch.stack([{a}, {a}], {d}) | F.pad({a}, (1, 2), value=3) |
F.pad({a}, (-1, 1)) | {a}.diff(dim={d}) | {a}.new_zeros(2, 3) | torch.zeros_like({a}) |
torch.ones_like({a}) | torch.full_like({a}, {k}) | {a}.new_tensor([1, 2]) | {a} * {n} | {a} + {n} |
{n} - {a} | {a} / 2 | {a} / 0.25 | {a} ** 2 | torch.rsub({a}, {k}, alpha=2) | {a}.conj() |
{a}.resolve_conj() | {a}.repeat(2, *([1] * {a}.dim())) | {a}.reshape(-1) | {a}.flatten() |
torch.block_diag({a}, {a}) | torch.atleast_2d({a}) | {a}.to(torch.float64) | {a}.to(torch.complex64) |
{a}.clone(memory_format=torch.contiguous_format) | {a}.nan_to_num(1, 2, 3) | {a}.positive() |
F.threshold({a}, 0.5, -1) | F.hardshrink({a}, 0.5) | F.softshrink({a}, 0.5) | {a}.fliplr() |
torch.atleast_3d({a}) | {a}.ravel() | torch.hstack([{a}, {a}])
"""
# Jumps: a rounding in makes another number out, so they take exact values only.
JUMPY = """
{a}.sign() | {a}.floor() | {a}.ceil() | {a}.round() | {a}.trunc() | {a}.frac() | {a} == {k} |
{a} > {n} | {a} <= {k} | {a} != {n} | {a}.logical_not() | {a}.isnan() | {a}.isinf() | {a}.signbit() |
{a}.argmax() | {a}.argmin({d}) | {a}.argmax({d}, keepdim=True) | {a}.sort({d})[0] | {a}.heaviside({a}) |
{a}.sort(dim={d}, stable=True, descending=True)[1] | {a}.argsort({d}, stable=True) | {a}.bool() |
{a}.topk(min(2, {a}.shape[-1]))[0] | {a}.any({d}) | {a}.all() | {a}.any() | {a}.count_nonzero({d}) |
{a}.to(torch.int32) | {a}.to(torch.int64) | {a}.to(torch.uint8) | {a}.to(torch.int8) | {a}.long() |
{a}.bool().to(torch.float32) | {a} % 3 | {a}.fmod(2) | {a}.remainder({n}) | {a} // 2 | {a}.isfinite() |
torch.div({a}, 3, rounding_mode='trunc') | torch.div({a}, 2, rounding_mode='floor') | {a}.sgn() |
{a}.to(torch.bfloat16) | {a}.to(torch.float16) | torch.where({a} > 0, {a}, {n}) | {a}.cummax({d})[1] |
{a}.bitwise_not() | {a} << 1 | {a} >> 1 | {a} & 3 | {a}.bitwise_or(4) | {a} ^ {k} | {a}.max({d})[1] |
{a}.kthvalue(1, {d})[0] | {a}.median({d})[0] | {a}.unique() | {a}.nonzero() | {a}[{a} > 0] |
torch.isin({a}, {a}) | torch.bucketize({a}, torch.tensor([-1.0, 0.5, 2.0], device=dev)) |
{a}.masked_select({a} > {n}) | {a}.logical_and({a} > 1) | {a}.xlogy({a}).isnan() |
F.one_hot({a}.long() % 4, 4) | {a}.histc(4, -4, 4) | {a}.float().quantile(0.5) | {a}.equal({a} + 0)
"""
# Rounded: close to eager's, not the same bits.
ROUGH = """
{a}.exp() | {a}.sin() | {a}.tanh() | {a}.sigmoid() | {a}.abs().sqrt() | {a}.abs().log1p() | {a} / 3 |
{a}.softmax({d}) | {a}.log_softmax({d}) | F.gelu({a}) | F.silu({a}) | {a}.mean() | {a}.mean({d}) |
{a}.var() | {a}.std({d}, keepdim=True) | {a}.norm() | {a}.logsumexp({d}) | {a}.expm1() | {a}.cos() |
F.softplus({a}) | F.elu({a}) | F.layer_norm({a}, {a}.shape[-1:]) | F.normalize({a}, dim={d}) |
{a}.erf() | {a}.atan() | {a}.asinh() | {a}.rsqrt().nan_to_num(0, 1, 1) | F.mse_loss({a}, {a} * 2) |
{a}.reciprocal() | {a} * 0.3 | {a}.float() @ {a}.float().mT | {a}.logcumsumexp({d}) |
F.log_softmax({a}.flatten(), 0) | {a}.sinc() | {a}.lerp({a} + 1, 0.3) | {a}.renorm(2, 0, 1.5) | F.hardsigmoid({a}) |
F.interpolate({a}[None, None].float(), scale_factor=2) | F.avg_pool1d({a}.float()[None], 2)
"""
REDUCE = """
{a}.sum() | {a}.sum({d}) | {a}.sum({d}, keepdim=True) | {a}.amax({d}) | {a}.amin() | {a}.max() |
{a}.max({d})[0] | {a}.min({d}, keepdim=True)[0] | {a}.prod() | {a}.prod({d}) | {a}.cumsum({d}) |
{a}.cumprod({d}) | {a}.sum(({d}, {e})) | {a}.nansum() | {a}.aminmax()[1] | {a}.cummax({d})[0] |
{a}.trace() | {a}.sum(dtype=torch.float64) | F.max_pool1d({a}.float()[None], 2) + 0 | {a}.norm(1)
"""
BINARY = """
{a} + {b} | {a} - {b} | {a} * {b} | torch.add({a}, {b}, alpha=2) | torch.maximum({a}, {b}) |
torch.minimum({a}, {b}) | torch.cat([{a}, {b}]) | torch.stack([{a}, {b}]) | torch.outer({a}, {b}) |
{a} @ {b} | torch.where(torch.ones_like({a}).bool(), {a}, {b}) | torch.addcmul({a}, {a}, {b}) |
torch.lerp({a}, {b}, 0.5) | {a}.mul({b}).sum() | torch.mm({a}, {b}.t()) | torch.dot({a}, {b}) |
torch.cdist({a}[None], {b}[None], 1) | torch.kron({a}, {b}) | torch.fmax({a}, {b}) |
torch.vstack([{a}, {b}]) | F.linear({a}, {b}) | torch.einsum('...i,...i->...', {a}, {b}) |
torch.tensordot({a}, {b}, 1) | {a}.expand_as({b}) + {b} | torch.addmm({a}, {a}, {b}) |
torch.broadcast_tensors({a}, {b})[0] * 2 | torch.copysign({a}, {b}) | {a}.where({b} == {b}, {b}) |
F.embedding(({a}.detach().abs().long() % 2), {b}) | torch.clamp({a}, max={b})
"""
ROUGH_BINARY = """
{a} / {b} | torch.hypot({a}, {b}) | torch.atan2({a}, {b}) | F.mse_loss({a}, {b}) | {a}.float() @ {b}.float() / 3 |
torch.logaddexp({a}, {b}) | F.cosine_similarity({a}, {b}, 0) | F.cross_entropy({a}, {b}.softmax(-1)) | torch.addcdiv({a}, {a}, {b} * {b} + 1) |
F.bilinear({a}, {a}, {b}[None]) | F.scaled_dot_product_attention({a}, {b}, {b}) | F.smooth_l1_loss({a}, {b})
"""
JUMPY_BINARY = """
{a} < {b} | {a} == {b} | {a} >= {b} | torch.where({a} > {b}, {a}, {b}) | {a}.logical_xor({b}) |
torch.where({a} > 0, {b}, 1) | {a}.masked_fill({b} > 0, {k}) | {a}.eq({b}).any() | {a} & {b} |
{a}.bitwise_or({b}) | {a}.type_as({b}) | {a}.to({b}) | torch.result_type({a}, {b}) and {a} * {b} |
torch.searchsorted({a}.flatten().sort()[0], {b}) | torch.isclose({a}, {b}) | torch.fmod({a}, {b} * 0 + 2)
"""
INDEX = """
{a}.index_select({d}, torch.tensor({p}, device=dev)) | {a}[torch.tensor({p}, device=dev)] |
{a}.take(torch.tensor([0, 1, 0], device=dev)) | {a}[..., torch.tensor({p}, device=dev)] |
{a}.gather({d}, torch.zeros_like({a}, dtype=torch.long)) | {a}[None, :, None] | {a}[{p}] |
{a}.index_add({d}, torch.tensor({p}, device=dev), torch.ones_like({a}).index_select({d}, torch.tensor({p}, device=dev))) |
{a}.index_fill({d}, torch.tensor({p}, device=dev), {k}) | {a}.index_copy({d}, torch.tensor({p}, device=dev), torch.zeros_like({a}).index_select({d}, torch.tensor({p}, device=dev))) |
{a}.scatter({d}, torch.zeros_like({a}, dtype=torch.long).narrow({d}, 0, 1), 2) |
{a}.scatter_add({d}, torch.zeros_like({a}, dtype=torch.long), {a}) | {a}.select_scatter({a}.select({d}, 0) * 2, {d}, -1) |
{a}.slice_scatter({a}.narrow({d}, 0, 1), {d}, 1, 2) | {a}.diagonal_scatter(torch.zeros_like({a}.diagonal())) |
{a}.put(torch.tensor([0, 1], device=dev), torch.ones(2, dtype={a}.dtype, device=dev)) |
{a}.index_put((torch.tensor({p}, device=dev),), torch.ones((), dtype={a}.dtype, device=dev), accumulate=True) |
{a}.scatter_reduce({d}, torch.zeros_like({a}, dtype=torch.long), {a}, 'amax') |
{a}.reshape(-1).slice_scatter({a}.reshape(1, -1)[0, :-1] * 2, 0, 1) |
{a}.reshape({s}).slice_scatter({a}.reshape(-1)[:1].view(1), 0, 1, 2) |
{a}.reshape(-1, 1).index_copy(0, torch.tensor([1], device=dev), {a}.reshape(1, -1)[:, :1] + {k})
"""
VIEW = """
{a}.t() | {a}.mT | {a}.transpose({d}, {e}) | {a}.permute(*range({a}.dim())[::-1]) | {a}.view(-1) |
{a}.view({s}) | {a}.reshape({s}) | {a}[{m}] | {a}.select({d}, {m}) | {a}.narrow({d}, {m}, 1) |
{a}[::2] | {a}[1:] | {a}[..., {m}:] | {a}[..., ::3] | {a}.unsqueeze({d}) | {a}.squeeze() |
{a}.squeeze({d}) | {a}.diagonal() | {a}.diagonal({k}, {d}, {e}) | {a}.unfold({d}, 2, 2) |
{a}.unfold({d}, 2, 1) | {a}.expand(2, *{a}.shape) | {a}[:1].expand_as({a}) | {a}.chunk(2, {d})[-1] |
{a}.split(2, {d})[0] | {a}.unbind({d})[-1] | {a}.detach() | {a}.data | {a}.view_as({a}) |
{a}.flatten() | {a}.movedim({d}, {e}) | {a}.as_strided((2, 2), (2, 1)) | {a}.as_strided((3,), (1,), 1) |
{a}.as_strided((2, 3), (1, 1)) | {a}.real | {a}.imag | torch.view_as_real({a}) | {a}.narrow({d}, 0, 0) |
torch.view_as_complex({a}) | {a}.view(torch.int32) | {a}.view(torch.uint8) | {a}[None] |
{a}.tensor_split(2, {d})[0] | {a}.swapaxes({d}, {e}) | {a}.unflatten({d}, (1, -1)) | {a}.conj() |
{a}.view(*{a}.shape, 1) | {a}[..., None, :] | {a}[..., -1] | {a}.ravel() | {a}.view({a}.dtype) |
torch._neg_view({a}) | {a}.H | {a}.adjoint() | {a}.broadcast_to(2, *{a}.shape) | {a}.alias()
"""
# In place: {a} is written. {b} is cloned, so that it never overlaps {a} in part.
WRITE = """
{a}.add_({k}) | {a}.mul_({n}) | {a}.sub_(1) | {a}.neg_() | {a}.fill_({k}) | {a}.zero_() | {a}.abs_() |
{a}.add_({b}.clone()) | {a}.mul_({b}.clone()) | {a}.sub_({b}.clone(), alpha=2) | {a}.copy_({b}.clone()) |
{a}.copy_({b}.cpu().clone()) | {a}.relu_() | {a}.clamp_(-3, 3) | {a}.t_() | {a}.squeeze_() | {a}.unsqueeze_({d}) |
{a}.transpose_({d}, {e}) | {a}.div_(2) | {a}.add_({a}) | {a}.mul_({a}) | {a}.sub_({a}.sum()) |
{a}[0] = {n} | {a}[..., 0] = {k} | {a}[1:] = {b}.clone() | {a}[:, 1] *= 2 | {a} += {b}.clone() |
{a} *= 2 | {a}[...] = {b}.clone() | {a}.data.add_(1) | {a}.data = {b}.clone() | {a}.set_({b}) |
{a}.resize_(max({a}.numel() - 1, 0)) | {a}.resize_({a}.numel()) | {a}.requires_grad_() | {a}.detach_() |
{a}.view(-1).add_(1) | {a}.view(-1)[1:] = {a}.view(1, -1)[0, :-1] * 2 | {a}.diagonal().fill_({k}) | {a}.diagonal().mul_(2) | {a}.narrow({d}, {m}, 1).zero_() |
{a}.index_fill_({d}, torch.tensor({p}, device=dev), 2) | {a}[torch.tensor({p}, device=dev)] = {k} |
{a}.scatter_({d}, torch.zeros_like({a}, dtype=torch.long), 1) | {a}.masked_fill_(torch.ones_like({a}).bool(), {k}) |
{a}.as_strided((2, 2), (2, 1)).add_(5) | {a}.t().copy_({b}.clone().t()) | {a}.addcmul_({b}.clone(), {b}.clone()) |
{a}.tril_() | {a}.triu_(1) | {a}.fill_diagonal_({k}) | {a}.lerp_({b}.clone(), 0.5) | {a}.swapaxes_(0, -1) |
{a}.index_add_({d}, torch.tensor({p}, device=dev), {a}.index_select({d}, torch.tensor({p}, device=dev))) |
{a}.real.mul_(2) | {a}.imag.zero_() | {a}.view(torch.uint8).fill_(0) | {a}.select({d}, {m}).copy_({a}.select({d}, 0).clone()) |
{a}.square_() | {a}.conj_physical_() | {a}.detach().mul_(2) | {a}.fill_({b}.sum()) | {a}.unbind({d})[0].add_(1) |
{a}.flip(0).zero_() | {a}.resize_as_({a}[:1]) | {a}.chunk(2, {d})[-1].sub_(3) | {a}.unfold({d}, 2, 2).neg_() |
torch.add({b}, 1, out={a}) | torch.mul({b}, {b}, out={a}) | torch.sum({b}, out={a}) | torch.sub({b}, {k}, out={a}) |
torch.abs({b}, out={a}) | torch.cat([{b}, {b}], out={a}) | torch.add({a}, {a}, out={a}) | torch.neg({b}, out={a}) |
torch.cumsum({b}, 0, out={a}) | torch.amax({b}, 0, out={a}) | torch.stack([{b}], out={a}) | torch.zeros(2, 3, out={a}) |
torch.arange(6, out={a}) | torch.maximum({b}, {b}, out={a}) | torch.index_select({b}, 0, torch.tensor([0], device=dev), out={a})
"""
JUMPY_WRITE = """
{a}.floor_() | {a}.sign_() | {a}.masked_fill_({a} > 0, {k}) | {a}[{a} > {n}] = {k} | {a}.round_() |
{a}.logical_not_() | {a}.remainder_(3) | {a}.bitwise_and_(3) | {a}.eq_(1) | {a}.masked_scatter_({a} > 0, {a}.neg()) |
torch.gt({b}, 0, out={a}) | {a}.copy_({b} > 0) | {a}.where({a} > 0, {a} * 2) | {a}.fmod_(2) | {a}.ge_({b}.clone())
"""
ROUGH_WRITE = """
{a}.tanh_() | {a}.sigmoid_() | {a}.exp_() | {a}.div_(3) | {a}.sin_() | {a}.mul_(0.7) | {a}.erf_() |
torch.sigmoid({b}, out={a}) | torch.softmax({b}, 0, out={a}) | torch.mean({b}, 0, out={a}) | F.silu({a}, inplace=True)
"""
READ = """
note({a}) | note({a}.tolist()) | note({a}.sum()) | note(len({a})) | note({a}.cpu()) | note({a}.shape[0]) |
note({a}.view(-1)[0].item()) | note({a}.is_contiguous()) | note({a}[0].cpu()) | note({a}.detach().numel())
"""
JUMPY_READ = """
note(bool(({a} > 0).any())) | note(str({a})) | note(int({a}.sum())) | note(repr({a}[0])) |
note(torch.equal({a}, {a} * 1)) | note(bool({a}.sum() > 0)) | note({a}.allclose({a})) | note(({a} > 0).tolist())
"""
SYNC = "sync() | sync(wait=True)"
GRAD = """
{t} = grad_of({a}.sum(), {b}) | {t} = grad_of(({a} * {a}).sum(), {b}) | ({a} * 2).sum().backward() |
{t} = {b}.grad | {b}.grad = None | {t} = grad_of({a}.flatten()[0], {b}) | {a}.mean().backward() |
{t} = grad_of(({a} * {b}).sum(), {b})
"""
OTHER = """
{t} = {a}.cpu().clone().to(dev) | {t} = {a}.to('cpu', torch.float32).clone().to(dev) |
{t} = torch.empty_like({a}).copy_({a}.cpu()) | {t} = {a}.detach().clone().requires_grad_() |
{t} = {a}.detach().requires_grad_() | {t} = torch.tensor({a}.tolist(), device=dev) |
{t} = torch.tensor({k}.5, dtype=torch.float64, device=dev) | {t} = {a} | {t} = torch.empty_like({a}).copy_({a}) |
{t} = {a}.new_empty(0) | {t} = torch.full(({k},), {n}, device=dev) | {t} = torch.eye(3, device=dev) |
{t} = torch.zeros(2, 3, device=dev).set_({b}) |
{t} = torch.empty_strided({a}.shape, {a}.stride(), dtype={a}.dtype, device=dev).copy_({a})
"""


def split(text: str) -> list[str]:
    """The statements of one of the texts above: a '|' that stands alone divides."""
    parts: list[str] = []
    depth, current = 0, ""
    for word in text.split():
        if word == "|" and depth == 0:
            parts.append(current.strip())
            current = ""
            continue
        depth += word.count("(") + word.count("[") - word.count(")") - word.count("]")
        current += word + " "
    return [p for p in [*parts, current.strip()] if p]
