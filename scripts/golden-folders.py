"""Writes test/golden/tokenizer-folders.json.br: folders without tokenizer.json and what transformers makes of texts with
them. python scripts/golden-folders.py"""
import base64, json, os, random, subprocess, tempfile
import sentencepiece
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BertTokenizer, EsmTokenizer, MarianTokenizer, MPNetTokenizer, RobertaTokenizer

GOLDEN = os.path.join(os.path.dirname(__file__), '..', 'test', 'golden', 'tokenizer-folders.json.br')
DRAW = random.Random(7)
PLAIN = ['the cat sat on the mat', 'a dog and a cat', 'Where is the sea?', 'unable, unseen; done.', 'old cats sing']
OTHER = ['le chat est là', 'où êtes-vous allé', "l'été à la mer", 'ça va très bien']
RANGES = [range(32, 127)] * 3 + [range(0xc0, 0x180), range(0x300, 0x320), range(0x3b1, 0x3ca), range(0x4e00, 0x4e20),
                                 range(0x1f600, 0x1f608), [9, 10, 0xa0, 0x3000, 0x200b, 0x2581, 0xad, 0]]


def some(extra=()):
    """Texts: words, random characters, and what a tokenizer may take for something else."""
    texts = ['', ' ', *PLAIN, *OTHER, *extra]
    for _ in range(24):
        texts.append(''.join(chr(DRAW.choice(DRAW.choice(RANGES))) for _ in range(DRAW.randrange(1, 16))))
    return texts


def rows(tokenizer, texts):
    out = []
    for text in texts:
        pair = DRAW.choice([t for t in texts if t])
        both = tokenizer(text, pair)
        ids = tokenizer(text)['input_ids']
        out.append({'text': text, 'ids': ids, 'decoded': tokenizer.decode(ids, skip_special_tokens=True), 'pair': pair,
                    'pairIds': both['input_ids'], 'typeIds': both.get('token_type_ids') or [0] * len(both['input_ids'])})
    return out


def folder(name, kind, files, texts):
    with tempfile.TemporaryDirectory() as at:
        for file, content in files.items():
            with open(os.path.join(at, file), 'wb') as f:
                f.write(content if isinstance(content, bytes) else content.encode())
        answers = rows(kind.from_pretrained(at), texts)
    stored = {file: base64.b64encode(c if isinstance(c, bytes) else c.encode()).decode() for file, c in files.items()}
    return {'name': name, 'files': stored, 'rows': answers}


def pieces(lines, kind, size):
    with tempfile.TemporaryDirectory() as at:
        with open(f'{at}/text', 'w') as f:
            f.write('\n'.join(lines * 20))
        sentencepiece.SentencePieceTrainer.train(
            input=f'{at}/text', model_prefix=f'{at}/m', vocab_size=size, model_type=kind, hard_vocab_limit=False,
            normalization_rule_name='identity', bos_id=-1, minloglevel=2)
        with open(f'{at}/m.model', 'rb') as f:
            return f.read()


def marian(kind):
    source, target = pieces(PLAIN, kind, 60), pieces(OTHER, kind, 50)
    words = {word: i for i, word in enumerate(['</s>', '<unk>', '>>fra<<', '>>deu<<'])}
    for file in source, target:
        model = sentencepiece.SentencePieceProcessor(model_proto=file)
        for i in range(model.get_piece_size()):
            # Some pieces are missing from the list, which makes them unknown.
            if i % 9 != 4:
                words.setdefault(model.id_to_piece(i), len(words))
    words['<pad>'] = len(words)
    files = {'source.spm': source, 'target.spm': target, 'vocab.json': json.dumps(words)}
    coded = ['>>fra<< the cat', '>>fra<<the cat', '>>xyz<< a dog', ' >>fra<< x', 'a >>fra<< b', '>>deu<<>>fra<<',
             'the</s>cat', '<pad> a <unk>', '>> a']
    return folder(f'marian-{kind}', MarianTokenizer, files, some(coded))


def word_pieces(name, kind, words, settings, texts=()):
    files = {'vocab.txt': '\n'.join(words) + '\n', 'tokenizer_config.json': json.dumps(settings)}
    return folder(name, kind, files, some(texts))


LETTERS = [chr(c) for c in [*range(33, 127), *range(0xc0, 0x180), *range(0x3b1, 0x3ca), *range(0x4e00, 0x4e10)]]
INSIDE = ['the', 'cat', 'un', '##able', '##s', *LETTERS, *('##' + c for c in LETTERS)]
BERT = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *INSIDE]
ESM = ['<cls>', '<pad>', '<eos>', '<unk>', *'LAGVSERTIDPKQNFYMHWCXBUZO.-', '<null_1>', '<mask>']


def roberta():
    words = ['<s>', '<pad>', '</s>', '<unk>', *sorted(ByteLevel.alphabet()), 'th', 'the', 'Ġt', 'Ġth', 'at', '<mask>']
    files = {'vocab.json': json.dumps({word: i for i, word in enumerate(words)}),
             'merges.txt': '#version: 0.2\nt h\nth e\nĠ t\nĠt h\na t\n',
             'tokenizer_config.json': json.dumps({'tokenizer_class': 'RobertaTokenizer'})}
    return folder('roberta', RobertaTokenizer, files, some(['the<mask>cat', '</s>a']))


def main():
    bert = dict(tokenizer_class='BertTokenizer')
    all_ = [marian('unigram'), marian('bpe'), roberta(),
            word_pieces('bert', BertTokenizer, BERT, bert, ['a [MASK] b[SEP]']),
            word_pieces('bert-cased', BertTokenizer, BERT, {**bert, 'do_lower_case': False}),
            word_pieces('bert-accents', BertTokenizer, BERT, {**bert, 'strip_accents': False}),
            word_pieces('bert-plain', BertTokenizer, BERT,
                        {**bert, 'do_lower_case': False, 'strip_accents': True, 'tokenize_chinese_chars': False}),
            word_pieces('mpnet', MPNetTokenizer, ['<s>', '<pad>', '</s>', '[UNK]', *INSIDE, '<mask>'],
                        dict(tokenizer_class='MPNetTokenizer')),
            word_pieces('esm', EsmTokenizer, ESM, dict(tokenizer_class='EsmTokenizer'),
                        ['MKTAYIAK', 'M <mask> L', 'MKj', 'A.B-C', 'MK<cls>'])]
    packed = json.dumps(all_, separators=(',', ':'), ensure_ascii=False)
    subprocess.run(['node', '-e', "process.stdout.write(require('zlib').brotliCompressSync(require('fs').readFileSync(0)))"],
                   input=packed.encode(), stdout=open(GOLDEN, 'wb'), check=True)
    print(os.path.getsize(GOLDEN), 'bytes')


main()
