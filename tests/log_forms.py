# ruff: noqa: E501, ISC004 - lines as they are printed
"""Forms in which training scripts print progress: real lines of each, and what is to be read of them.

Each form: its lines, the step, the number of steps (0: unknown), the losses of the training and of evaluations by step.
"""

import math

PROGRESS_FORMS = {
    # Scripts of people's own.
    "brackets": (["[65/200] train loss: 0.1758"], 65, 200, [(65, 0.1758)], []),
    "parentheses": (["(65/200) loss: 0.1758"], 65, 200, [(65, 0.1758)], []),
    "fraction first": (["65/200 loss 0.1758 lr 1e-3"], 65, 200, [(65, 0.1758)], []),
    "iter": (["iter 37/60  loss 7.03"], 37, 60, [(37, 7.03)], []),
    "it": (["it: 37 | train_loss=7.03"], 37, 0, [(37, 7.03)], []),
    "Step: i": (["Step: 120, Training Loss: 2.31"], 120, 0, [(120, 2.31)], []),
    "step of": (["step 120 of 500: loss=2.31"], 120, 500, [(120, 2.31)], []),
    "tabs": (["step\t120\tloss\t2.31\tlr\t0.001"], 120, 0, [(120, 2.31)], []),
    "tabs and colons": (["Step:\t120\tTrain Loss:\t2.31\tVal Loss:\t2.4"], 120, 0, [(120, 2.31)], [(120, 2.4)]),
    "logging": (["2026-11-25 09:12:33,101 - INFO - [120/500] loss: 2.31"], 120, 500, [(120, 2.31)], []),
    "date with slashes": (["11/25/2026 09:12:33 - INFO - step 120/500 loss 2.31"], 120, 500, [(120, 2.31)], []),
    "tensor": (["step 3 loss tensor(2.3100, device='cuda:0', grad_fn=<NllLossBackward0>)"], 3, 0, [(3, 2.31)], []),
    "only a number in brackets": (["[ 0] loss=1.0", "[ 10] loss=0.5"], 10, 0, [(0, 1.0), (10, 0.5)], []),
    "only a number": (["10 | loss 0.5", "20 | loss 0.4"], 20, 0, [(10, 0.5), (20, 0.4)], []),
    "one letter": (["i=10 loss: 0.5", "i=20 loss: 0.4"], 20, 0, [(10, 0.5), (20, 0.4)], []),
    "a number behind a logger's words": (
        ["2026-11-26 05:40:12,123 - INFO - [10] loss: 0.5", "05:41:12 20 loss 0.4"], 20, 0, [(10, 0.5), (20, 0.4)], [],
    ),
    "a number in each epoch": (
        ["Epoch 1/2", "[ 0] loss 1.0", "[ 1] loss 0.9", "Epoch 2/2", "[ 0] loss 0.8", "[ 1] loss 0.7"],
        3, 0, [(0, 1.0), (1, 0.9), (2, 0.8), (3, 0.7)], [],
    ),
    "steps below the line of each epoch": (
        ["=== Epoch 1 ===", "step 1 loss 1.0", "step 2 loss 0.9", "=== Epoch 2 ===", "step 1 loss 0.8"],
        3, 0, [(1, 1.0), (2, 0.9), (3, 0.8)], [],
    ),
    "processes that begin lines with their number": (
        ["[0] loss 1.0", "[1] loss 1.1", "[0] loss 0.9", "[1] loss 1.0"], 1, 0, [(0, 1.0), (1, 1.1)], [],
    ),
    "a test at the end": (
        ["epoch 1 loss 0.5 val loss 0.6", "epoch 2 loss 0.4 val loss 0.5", "test loss: 0.77"],
        2, 0, [(1, 0.5), (2, 0.4)], [(1, 0.6), (2, 0.5)],
    ),
    "a test after each epoch": (
        ["epoch 1 loss 0.5", "Test set: Average loss: 0.6", "epoch 2 loss 0.4", "Test set: Average loss: 0.5"],
        2, 0, [(1, 0.5), (2, 0.4)], [(1, 0.6), (2, 0.5)],
    ),
    "ep": (["ep 1 loss 0.5", "Ep: 002 | loss 0.4"], 2, 0, [(1, 0.5), (2, 0.4)], []),
    "thousands": (["step 1,000 of 12,500 loss 2.31"], 1000, 12500, [(1000, 2.31)], []),
    "no zero": (["step 3 loss .25"], 3, 0, [(3, 0.25)], []),
    "loss first": (["loss: 2.303494  [   64/60000]"], 64, 60000, [(64, 2.303494)], []),
    "loss, its average, then where": (["loss: 2.30 (2.31) [ 640/60000]"], 640, 60000, [(640, 2.3)], []),
    "thousands of a loss": (["step 10 loss 1,234.56", "step 20 loss 987.65"], 20, 0, [(10, 1234.56), (20, 987.65)], []),
    "right of how many, and a step": (["acc (640/1280) [10/100] loss 0.5"], 10, 100, [(10, 0.5)], []),
    "loss of a batch in a bar": (["Epoch 1/5:  18%|█▊        | 2/11 [00:15<01:10,  7.83s/img, loss (batch)=1.22]"], 2, 55, [(2, 1.22)], []),
    "after how many": (["Loss: 0.000418 after 875 batches"], 875, 0, [(875, 0.000418)], []),
    "losses in brackets": (["step 4 loss (train): 2.31 loss (val): 2.4"], 4, 0, [(4, 2.31)], [(4, 2.4)]),
    "how a loss was counted": (["step 4 train_loss (avg): 2.31 val_loss (mean): 2.4"], 4, 0, [(4, 2.31)], [(4, 2.4)]),
    "slash name": (["step=40 train/loss=2.31 val/loss=2.4"], 40, 0, [(40, 2.31)], [(40, 2.4)]),
    "loss/train": (["step 40 | loss/train: 2.31 | loss/val: 2.4"], 40, 0, [(40, 2.31)], [(40, 2.4)]),
    "parts and total": (["step 4 | recon_loss 0.5 | kl loss 0.1 | total loss 0.6"], 4, 0, [(4, 0.6)], []),
    "auxiliary": (["step 4 | aux loss: 0.01 | loss: 2.31"], 4, 0, [(4, 2.31)], []),
    "average": (["[step 4] avg loss = 2.31"], 4, 0, [(4, 2.31)], []),
    "best beside": (["step 4 | best loss 1.9 | loss 2.31"], 4, 0, [(4, 2.31)], []),
    "upper case": (["STEP 4 LOSS 2.31"], 4, 0, [(4, 2.31)], []),
    "update": (["update 40 | loss 2.31"], 40, 0, [(40, 2.31)], []),
    # Epochs.
    "epochs": (
        ["Epoch 1/10 loss: 0.9", "Epoch 2/10 loss: 0.8"], 2, 10, [(1, 0.9), (2, 0.8)], [],
    ),
    "epochs from 0": (
        ["Epoch: 0, Train Loss: 0.9, Val Loss: 1.0", "Epoch: 1, Train Loss: 0.8, Val Loss: 0.9"],
        2, 0, [(1, 0.9), (2, 0.8)], [(1, 1.0), (2, 0.9)],
    ),
    "[Epoch 1]": (["[Epoch 1/3] train_loss=0.9 | val_loss=1.0 | val_acc=0.5"], 1, 3, [(1, 0.9)], [(1, 1.0)]),
    "epoch, then its losses": (
        ["Epoch 1/3", "----------", "train Loss: 0.9 Acc: 0.6", "val Loss: 1.0 Acc: 0.5",
         "", "Epoch 2/3", "----------", "train Loss: 0.8 Acc: 0.6", "val Loss: 0.9 Acc: 0.5"],
        2, 3, [(1, 0.9), (2, 0.8)], [(1, 1.0), (2, 0.9)],
    ),
    "epoch and step": (
        ["Epoch [1/2], Step [100/600], Loss: 0.9", "Epoch [1/2], Step [600/600], Loss: 0.8",
         "Epoch [2/2], Step [100/600], Loss: 0.7"],
        700, 1200, [(100, 0.9), (600, 0.8), (700, 0.7)], [],
    ),
    "a step across epochs": (
        ["epoch 1/2 step 100/1200 loss 0.9", "epoch 1/2 step 500/1200 loss 0.8", "epoch 2/2 step 700/1200 loss 0.7"],
        700, 1200, [(100, 0.9), (500, 0.8), (700, 0.7)], [],
    ),
    "steps that begin again": (
        ["epoch 0 batch 0 loss 0.9", "epoch 0 batch 90 loss 0.8", "epoch 1 batch 0 loss 0.7", "epoch 1 batch 90 loss 0.6"],
        181, 0, [(0, 0.9), (90, 0.8), (91, 0.7), (181, 0.6)], [],
    ),
    "steps, then the epoch's mean": (
        ["Epoch 1 step 50 loss 0.9", "Epoch 1: train loss 0.95, val loss 1.0"], 50, 0, [(50, 0.9)], [(50, 1.0)],
    ),
    "a rule below the epoch": (
        ["Epoch 1", "-------------------------------", "loss: 2.30  [   64/60000]", "loss: 2.29  [ 6464/60000]",
         "Test Error: ", " Accuracy: 44.7%, Avg loss: 2.157 ", "Epoch 2", "-------------------------------",
         "loss: 2.10  [   64/60000]"],
        60064, 0, [(64, 2.3), (6464, 2.29), (60064, 2.1)], [],
    ),
    "right of how many": (
        ["Epoch 1/5 - loss: 0.51 - acc: 0.8 (48000/60000)", "Epoch 2/5 - loss: 0.41 - acc: 0.9 (54000/60000)"],
        2, 5, [(1, 0.51), (2, 0.41)], [],
    ),
    "right of how many, of an evaluation": (
        ["Epoch 3 train loss 0.4", "Epoch 3 val loss 0.5 acc (800/1000)"], 3, 0, [(3, 0.4)], [(3, 0.5)],
    ),
    "right of how many before another loss": (
        ["Epoch 3: train_loss=0.41 train_acc=0.88 (44000/50000) val_loss=0.5"], 3, 0, [(3, 0.41)], [(3, 0.5)],
    ),
    "an evaluation that counts its own steps": (
        ["step 500/1000 loss 1.0", "eval step 1/20 loss 0.7", "eval step 20/20 loss 0.8", "step 1000/1000 loss 0.5",
         "val step 1/20 | val loss 2.0", "val step 20/20 | val loss 2.5"],
        1000, 1000, [(500, 1.0), (1000, 0.5)], [(500, 0.8), (1000, 2.5)],
    ),
    "an evaluation longer than the training by now": (
        ["step 10/1000 loss 1.0", "eval step 19/20 loss 0.7", "eval step 20/20 loss 0.8", "step 20/1000 loss 0.9"],
        20, 1000, [(10, 1.0), (20, 0.9)], [(10, 0.8)],
    ),
    "an evaluation of an earlier step": (
        ["step 20 loss 1.0", "step 10: val loss 0.9"], 20, 0, [(20, 1.0)], [(10, 0.9)],
    ),
    # Examples and libraries.
    "pytorch-cifar": (
        ["Epoch: 0", " [=>....]  Step: 55ms | Tot: 1s302ms | Loss: 2.234 | Acc: 50.000% (640/1280)    " + "\b" * 20 + " 10/391 \r"
         " [==>...]  Step: 55ms | Tot: 9s302ms | Loss: 1.234 | Acc: 50.000% (6400/12800)    " + "\b" * 20 + " 100/391 "],
        100, 0, [(100, 1.234)], [],
    ),
    "torch's MNIST": (
        ["Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.299823", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.734230",
         "", "Test set: Average loss: 0.0478, Accuracy: 9844/10000 (98%)", "",
         "Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.5"],
        60640, 0, [(0, 2.299823), (640, 1.73423), (60640, 0.5)], [(640, 0.0478)],
    ),
    "torch's ImageNet": (
        ["Epoch: [0][  10/5005]\tTime  0.235 ( 0.301)\tData  0.000 ( 0.020)\tLoss 6.9e+00 (6.95e+00)\tAcc@1   0.00",
         "Test: [  0/196]\tTime  3.2 ( 3.2)\tLoss 1.1e+00 (1.1e+00)\tAcc@1  71.88 ( 71.88)"],
        10, 0, [(10, 6.9)], [],
    ),
    "torchvision": (
        ["Epoch: [1]  [  10/1875]  eta: 0:10:32  lr: 0.1  img/s: 412.1  loss: 6.9077 (6.9412)  acc1: 0.0 (0.2)  time: 0.3",
         "Test:   [  0/196]  eta: 0:05:12  loss: 6.1 (6.1)  acc1: 3.1 (3.1)"],
        10, 0, [(10, 6.9077)], [],
    ),
    "DCGAN": (["[0/5][0/1583]\tLoss_D: 1.7410\tLoss_G: 4.7762\tD(x): 0.5"], 0, 7915, [], []),
    "timm": (
        ["Train: 1 [  50/1251 (  4%)]  Loss:  6.951 (6.93)  Time: 0.512s,  250.0/s  LR: 1.000e-05  Data: 0.011"],
        50, 0, [(50, 6.951)], [],
    ),
    "mmengine": (
        ["2026/11/25 09:12:33 - mmengine - INFO - Epoch(train)  [1][ 50/196]  lr: 1.0e-02  eta: 0:05:11  loss: 1.81",
         "2026/11/25 09:13:33 - mmengine - INFO - Epoch(val) [1][40/40]  loss: 1.5  accuracy/top1: 40.2"],
        50, 0, [(50, 1.81)], [],
    ),
    "mmengine's iterations": (
        ["11/25 09:12:33 - mmengine - INFO - Iter(train) [  50/160000]  lr: 1.0e-02  eta: 9:05:11  loss: 2.31"],
        50, 160000, [(50, 2.31)], [],
    ),
    "mmcv": (["2026-11-25 09:12:33,101 - mmdet - INFO - Epoch [1][50/7330]\tlr: 1.978e-03, eta: 4:38:47, loss: 1.2"],
             50, 0, [(50, 1.2)], []),
    "Detectron2": (
        ["[11/25 09:12:33 d2.utils.events]:  eta: 0:10:11  iter: 19  total_loss: 1.73  loss_cls: 0.6  loss_box_reg: 0.4  "
         "time: 0.51  lr: 0.00025  max_mem: 5012M"],
        19, 0, [(19, 1.73)], [],
    ),
    "fairseq": (
        ["2026-11-25 09:12:33 | INFO | train_inner | epoch 001:    100 / 1000 loss=8.2, ppl=300, wps=9, num_updates=100, "
         "lr=1e-05, gnorm=1.2, loss_scale=128, wall=12",
         "2026-11-25 09:14:33 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.5 | ppl 181 | num_updates 1000"],
        100, 0, [(100, 8.2)], [(1000, 7.5)],
    ),
    "fairseq's JSON": (
        ['2026-11-25 09:12:33 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "8.2", "num_updates": "100", '
         '"lr": "1e-05"}'],
        100, 0, [(100, 8.2)], [],
    ),
    "nanoGPT": (
        ["step 0: train loss 10.99, val loss 10.98", "iter 0: loss 10.98, time 12.34ms, mfu -100.00%",
         "iter 10: loss 8.2, time 9.1ms, mfu 3.0%"],
        10, 0, [(0, 10.99), (1, 10.98), (10, 8.2)], [(0, 10.98)],
    ),
    "build-nanogpt": (
        ["step    19 | loss: 8.21 | lr 1.6e-05 | norm: 2.1 | dt: 338ms | tok/sec: 1551098"], 19, 0, [(19, 8.21)], [],
    ),
    "llm.c": (
        ["step   12/74 | train loss 5.36 | norm 1.94 | lr 3.0e-04 | (3.44 ms | 148817 tok/s)"], 12, 74, [(12, 5.36)], [],
    ),
    "litgpt": (
        ["Epoch 1 | iter 12 step 6 | loss train: 2.31, val: n/a | iter time: 312.1 ms (step)"], 12, 0, [(12, 2.31)], [],
    ),
    "Megatron": (
        [" [2026-11-25 09:12:33] iteration       10/     100 | consumed samples:          160 | elapsed time per iteration"
         " (ms): 123.4 | learning rate: 1.5E-04 | global batch size:    16 | lm loss: 1.06E+01 | loss scale: 1.0 |"],
        10, 100, [(10, 10.6)], [],
    ),
    "DeepSpeed": (
        ["steps: 10 loss: 2.3456 iter time (s): 0.52 samples/sec: 15.3",
         "[2026-11-25 09:12:33,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=0, lr=[1e-05]"],
        20, 0, [(10, 2.3456)], [],
    ),
    "torchtitan": (
        ["[titan] 2026-11-25 09:12:33,123 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2  memory:  1.0GiB(2%)"],
        10, 0, [(10, 8.1234)], [],
    ),
    # Bars.
    "tqdm": (["step: 40%|####      | 2/5 [00:00<00:00, 18.29it/s, loss=6.24]"], 2, 5, [(2, 6.24)], []),
    "tqdm of epochs": (
        ["Epoch 1/3: 100%|##########| 5/5 [00:01<00:00, 5.0it/s, loss=0.9]",
         "Epoch 2/3:  40%|####      | 2/5 [00:00<00:00, 5.0it/s, loss=0.8]"],
        7, 15, [(5, 0.9), (7, 0.8)], [],
    ),
    "tqdm of each epoch, and a line": (
        ["100%|##########| 5/5 [00:01<00:00, 5.0it/s]", "Epoch 1/3 train_loss=0.9 val_loss=1.0",
         "100%|##########| 5/5 [00:01<00:00, 5.0it/s]", "Epoch 2/3 train_loss=0.8 val_loss=0.9"],
        2, 3, [(1, 0.9), (2, 0.8)], [(1, 1.0), (2, 0.9)],
    ),
    "tqdm of each epoch's training and evaluation": (
        ["Epoch 1 [train]: 100%|##########| 10/10 [00:01<00:00, 5.0it/s, loss=0.5]",
         "Epoch 1 [val]:  50%|#####     | 2/4 [00:01<00:00, 5.0it/s, loss=0.6]",
         "Epoch 1 [val]: 100%|##########| 4/4 [00:01<00:00, 5.0it/s, loss=0.7]",
         "Epoch 2 [train]:  50%|#####     | 5/10 [00:01<00:00, 5.0it/s, loss=0.4]"],
        15, 0, [(10, 0.5), (15, 0.4)], [(10, 0.7)],
    ),
    "tqdm of an evaluation first": (
        ["Epoch 1/2 test: 100%|##########| 4/4 [00:01<00:00, 5.0it/s, test_loss=0.7]",
         "Epoch 1/2 train:  50%|#####     | 5/10 [00:01<00:00, 5.0it/s, loss=0.4]"],
        5, 20, [(5, 0.4)], [],
    ),
    "Lightning": (
        ["Epoch 0: 100%|##########| 10/10 [00:01<00:00, 9.9it/s, v_num=0, train_loss=2.30]",
         "Validation DataLoader 0: 100%|##########| 2/2 [00:00<00:00, 9.9it/s]",
         "Epoch 1:  40%|####      | 4/10 [00:01<00:01, 9.9it/s, v_num=0, train_loss=2.20, val_loss=2.25]"],
        14, 0, [(10, 2.3), (14, 2.2)], [(14, 2.25)],
    ),
    "Lightning's rich bar": (
        ["Epoch 1/4  ━━━━━━━━━━━━━━━━ 4/10 0:00:01 • 0:00:02 9.9it/s v_num: 0 train_loss: 2.30"],
        14, 50, [(14, 2.3)], [],
    ),
    "Keras 3": (
        ["Epoch 1/5", "\x1b[1m938/938\x1b[0m \x1b[32m━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m3s\x1b[0m 2ms/step - "
         "accuracy: 0.86 - loss: 0.48 - val_accuracy: 0.95 - val_loss: 0.17",
         "Epoch 2/5", "\x1b[1m100/938\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 2ms/step - loss: 0.2"],
        1038, 4690, [(938, 0.48), (1038, 0.2)], [(938, 0.17)],
    ),
    "Keras 2": (
        ["Epoch 1/5", "\r 10/938 [..............................] - ETA: 5s - loss: 2.1"
         "\r938/938 [==============================] - 3s 2ms/step - loss: 0.48 - accuracy: 0.86"],
        938, 4690, [(938, 0.48)], [],
    ),
    "Keras, a line of an epoch": (
        ["Epoch 2/5", "938/938 - 3s - 3ms/step - accuracy: 0.88 - loss: 0.40 - val_loss: 0.3"],
        1876, 4690, [(1876, 0.4)], [(1876, 0.3)],
    ),
    "torchtune": (["1|12|Loss: 2.31: 100%|##########| 12/12 [00:10<00:00,  1.1it/s]"], 12, 0, [(12, 2.31)], []),
    "YOLO": (
        ["      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
         "      2/100      2.5G      1.234      2.345      1.456         12        640: 100%|██████████| 8/8 [00:02<00:00, 3.1it/s]"],
        16, 800, [], [],
    ),
    # Records.
    "JSON lines": (
        ['{"step": 10, "loss": 2.31, "lr": 0.0001}', '{"step": 20, "train_loss": 2.2, "val_loss": 2.3}'],
        20, 0, [(10, 2.31), (20, 2.2)], [(20, 2.3)],
    ),
    "JSON in JSON": (['{"type": "train", "step": 10, "metrics": {"loss": 2.31, "lr": 1e-4}}'], 10, 0, [(10, 2.31)], []),
    "JSON in JSON, of both": (
        ['{"step":10,"train":{"loss":1.0,"lr":0.1},"val":{"loss":1.2}}', '{"val":{"loss":1.1},"train":{"loss":0.9},"step":20}'],
        20, 0, [(10, 1.0), (20, 0.9)], [(10, 1.2), (20, 1.1)],
    ),
    "JSON in JSON, of an evaluation": (['{"step": 10, "val": {"loss": 1.2}}'], 10, 0, [], [(10, 1.2)]),
    "JSON in JSON beside other things": (
        ['{"step": 10, "metrics": {"loss": 2.31}, "gpu": {"memory": 3}}', '{"loss": {"loss": 2.2, "step": 20}}'],
        20, 0, [(10, 2.31), (20, 2.2)], [],
    ),
    "JSON behind its epoch": (
        ['Epoch 3: {"train_loss": 0.5, "val_loss": 0.6}', 'Epoch 4: {"train_loss": 0.4, "val_loss": 0.5}'],
        4, 0, [(3, 0.5), (4, 0.4)], [(3, 0.6), (4, 0.5)],
    ),
    "JSON of an evaluation": (['{"mode": "val", "epoch": 1, "iter": 40, "loss": 1.5}'], 40, 0, [], [(40, 1.5)]),
    "DETR's log": (['{"train_lr": 1e-4, "train_loss": 9.1, "test_loss": 8.8, "epoch": 0, "n_parameters": 41302368}'],
                   1, 0, [(1, 9.1)], []),
    "dictionary": (["{'epoch': 1, 'step': 40, 'train_loss': 2.31}"], 40, 0, [(40, 2.31)], []),
    "dictionary behind its epoch": (
        ["Epoch 3: {'train_loss': 0.5, 'val_loss': 0.6}", "Epoch 4: {'train_loss': 0.4, 'val_loss': 0.5}"],
        4, 0, [(3, 0.5), (4, 0.4)], [(3, 0.6), (4, 0.5)],
    ),
    "dictionary behind its step": (
        ["step 10 {'loss': 0.5}", "step 20/90: {'loss': 0.4, 'epoch': 0.2}", "[val] step 20/90: {'loss': 0.6}"],
        20, 90, [(10, 0.5), (20, 0.4)], [(20, 0.6)],
    ),
    "dictionary with the epoch, behind its step": (
        ["step 80/90 {'loss': 0.5, 'epoch': 0}", "step 10/90 {'loss': 0.4, 'epoch': 1}"],
        100, 0, [(80, 0.5), (100, 0.4)], [],
    ),
    "dictionary behind a bar": (
        ["Epoch 1/3:  40%|####      | 2/5 [00:00<00:00, 5.0it/s]", "Epoch 1/3:  40%|####      | 2/5 [00:00<00:00, 5.0it/s]"
         "{'loss': 0.5}", "Epoch 1/3:  80%|########  | 4/5 [00:00<00:00, 5.0it/s, loss=0.4]"],
        4, 15, [(2, 0.5), (4, 0.4)], [],
    ),
    "numbers as numpy and torch print them": (
        ["{'loss': np.float64(0.5), 'step': 10}", "{'loss': tensor(0.4, device='cuda:0'), 'step': np.int64(20)}",
         "{'loss': Array(nan, dtype=float32), 'val_loss': np.float32(0.3), 'step': 30}"],
        30, 0, [(10, 0.5), (20, 0.4), (30, math.nan)], [(30, 0.3)],
    ),
    "HF Trainer": (["{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.5}"], 0, 0, [(0, 2.31)], []),
    "CSV": (
        ["step,train_loss,val_loss,lr", "10,2.31,2.4,0.0001", "20,2.2,2.3,0.0001"],
        20, 0, [(10, 2.31), (20, 2.2)], [(10, 2.4), (20, 2.3)],
    ),
    "CSV of epochs": (["epoch,loss", "1,2.31", "2,2.2"], 2, 0, [(1, 2.31), (2, 2.2)], []),
    "tab-separated": (["iter\tloss\tlr", "10\t2.31\t0.1"], 10, 0, [(10, 2.31)], []),
    "fastai": (
        ["epoch     train_loss  valid_loss  accuracy  time    ", "0         0.91        0.80        0.7       00:12",
         "1         0.71        0.60        0.8       00:12"],
        2, 0, [(1, 0.91), (2, 0.71)], [(1, 0.8), (2, 0.6)],
    ),
    "two words over one column": (
        ["Epoch   Train Loss   Val Loss", "-----   ----------   --------", "1       0.91         0.80"],
        1, 0, [(1, 0.91)], [(1, 0.8)],
    ),
    "a table with single spaces": (
        ["Iter Loss", "10 0.5", "Saved 300", "20 0.4", "30 nan"], 30, 0, [(10, 0.5), (20, 0.4), (30, math.nan)], [],
    ),
    "a table with commas, and other lines": (
        ["Iter, Loss", "10, 0.5", "Saved, 300", "20, 0.4"], 20, 0, [(10, 0.5), (20, 0.4)], [],
    ),
    "a sentence like a header": (
        ["Reporting loss every step to wandb", "step 10 loss 0.5 lr 0.1", "step 20 loss 0.4 lr 0.1"],
        20, 0, [(10, 0.5), (20, 0.4)], [],
    ),
    "a sentence like a header, and numbers": (
        ["Plotting loss per epoch", "loading", "1 2 3 4", "step 10 loss 0.5"], 10, 0, [(10, 0.5)], [],
    ),
    "a sentence between the rows of a table": (
        ["step,loss", "10,0.5", "Plotting loss per epoch", "20,0.4"], 20, 0, [(10, 0.5), (20, 0.4)], [],
    ),
    "a table with lines": (
        ["| Epoch | Train Loss | Val Loss |", "|-------|------------|----------|", "| 1 | 0.91 | 0.80 |"],
        1, 0, [(1, 0.91)], [(1, 0.8)],
    ),
}  # fmt: skip

# Lines that are no progress of a training, though they look like it: no step, no loss of the training.
MISLEADING_LINES = [
    "[11/25] 09:12:33 starting",
    "11/25 09:12:33 loss function: CrossEntropyLoss",
    "11/25 09:12 INFO loss 2.0",
    "2026-11-25 loss function cross_entropy",
    "Downloading shards:  33%|###3      | 1/3 [00:10<00:20, 10.0s/it]",
    "Downloading https://x/y.gz:  12%|#2        | 1.2M/9.9M [00:01<00:07]",
    "model.safetensors: 100%|##########| 548M/548M [00:05<00:00, 102MB/s]",
    "Loading weights: 100%|##########| 290/290 [00:00<00:00, 900.11it/s]",
    "Map (num_proc=4):  50%|#####     | 500/1000 [00:01<00:01, 400 examples/s]",
    "Validation:  50%|#####     | 5/10 [00:01<00:01, 4.0it/s, loss=2.0]",
    "Epoch 1 loss scale: 65536",
    "step 5: loss scale 65536",
    "OVERFLOW! Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "[3/7] Compiling fused_loss.cu",
    "torch 2.13.0, loss 1.2.3",
    "11/25 09:12:33 loss 1.2.3",
    "[ERROR] 3 losses were lost",
    "50% loss 0.5",
    "loss 0.5 gpu (10/80)GB",
    "gpu mem: 10.5 [10/80] loss 0.5",
    "loss 0.5 eta (1/24)",
    "step 3 loss 0,5",
    "step 3 loss 0,500",
    "step 3 loss 12_345",
    "step 3 loss 1,23",
    "step 3 loss 1e5,3",
    "Epoch 1 [val]: 100%|##########| 4/4 [00:01<00:00, 5.0it/s, loss=0.7]",
    "Validation: {'loss': 0.5}",
    "loaded 3/4 files, lossless",
    "ping: 5 packets, packet loss: 0%",
    "best loss: 0.31",
    "step 100: val loss 2.0",
    "step 100 | validation: loss 2.0, acc 0.5",
    "Epoch 3 | Val Loss: 2.0",
    "Epoch 3 | Test Loss: 2.0",
    "[Validation] [10/50] loss: 2.0",
    "Test: [ 10/100]  loss: 0.9 (0.9)",
    "Evaluating 10/50 loss 2.0",
    "eval_loss=2.0",
    "Early stopping: loss did not improve from 0.31",
    "using label smoothing 0.1 with loss weight 2",
    '{"learning_rate": 0.1, "loss": "cross_entropy", "epochs": 10}',
    '{"version": "1.2", "loss_weight": 0.5}',
    "{'train_loss': 1.0}",
    "step, then the loss, then 3",
    "training finished, train loss 0.3",
    "total steps: 500, loss: cross entropy",
    "max steps 500 loss 2.0",
    "http://host/step/5/loss/3",
    "Epoch 2/5",
    "1/5 - 3s",
]
